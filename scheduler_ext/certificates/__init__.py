"""The webhook's certificates: an authority of its own, a shared Secret, no cert-manager."""

from scheduler_ext.certificates.keeper import CertificateKeeper
from scheduler_ext.certificates.material import Lifetimes, Material
from scheduler_ext.certificates.serving import ServingContext

__all__ = ["CertificateKeeper", "Lifetimes", "Material", "ServingContext"]
