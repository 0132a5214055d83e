"""What can go wrong between us and the API server."""

from aliquot.errors import OperationError, UserError

__all__ = ["ApiError", "ApiServerError", "NoClusterError", "UnreachableError"]


class NoClusterError(UserError):
    """There is no usable kubeconfig or service account; the text says what was looked for."""


class ApiServerError(OperationError):
    """Every failure of a request; catch this where the reason does not matter."""


class UnreachableError(ApiServerError):
    """No (whole) answer came. The server may or may not have done what was asked."""


class ApiError(ApiServerError):
    """The server answered, and refused."""

    def __init__(
        self, status: int, reason: str = "", message: str = "", retry_after_s: float = 0.0
    ) -> None:
        super().__init__(message or reason or f"the API server answered {status}")
        self.status = status
        self.reason = reason
        """One word of Kubernetes, such as `AlreadyExists`."""
        self.message = message
        self.retry_after_s = retry_after_s
        """How long the server asks us to stay away; 0 when it does not."""

    @property
    def not_found(self) -> bool:
        return self.status == 404

    @property
    def conflict(self) -> bool:
        """The object is not the one we read: read it again. Includes `already_exists`.

        Of another uid, too: servers answer 409 to a replacement and 422 to a patch that names one.
        """
        return self.status == 409 or (self.status == 422 and "metadata.uid: " in self.message)

    @property
    def already_exists(self) -> bool:
        return self.status == 409 and self.reason == "AlreadyExists"

    @property
    def gone(self) -> bool:
        """The resource version (or the page) is too old: list anew."""
        return self.status == 410

    @property
    def forbidden(self) -> bool:
        return self.status == 403

    @property
    def is_final(self) -> bool:
        """Whether the same request cannot succeed later."""
        is_ours = 400 <= self.status < 500 and self.status not in (408, 410, 429)
        return is_ours and not self.conflict

    @property
    def is_hopeless(self) -> bool:
        """The same, for whoever can wait until somebody grants what is forbidden now."""
        return self.is_final and self.status not in (401, 403)
