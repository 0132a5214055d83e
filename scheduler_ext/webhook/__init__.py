"""The admission webhook: pods that name aliquot.dev are converted, completed, and checked."""

from scheduler_ext.webhook.catalog import GpuCatalog, GpuKind
from scheduler_ext.webhook.configuration import webhook_configurations
from scheduler_ext.webhook.review import MalformedReviewError, Webhook
from scheduler_ext.webhook.routes import webhook_routes
from scheduler_ext.webhook.settings import InitContainerRule, WebhookSettings

__all__ = [
    "GpuCatalog",
    "GpuKind",
    "InitContainerRule",
    "MalformedReviewError",
    "Webhook",
    "WebhookSettings",
    "webhook_configurations",
    "webhook_routes",
]
