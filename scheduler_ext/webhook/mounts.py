"""Which mounts of a user would cover what the node agent puts into a container."""

import posixpath

__all__ = ["covered_path"]

OUR_PATHS = ("/etc/aliquot", "/run/aliquot", "/usr/local/lib/aliquot", "/etc/ld.so.preload")


def covered_path(mount_path: str) -> str | None:
    """Our path that a mount there would hide or change, or None when it is in nobody's way."""
    path = _settled(mount_path)
    for ours in OUR_PATHS:
        if _is_within(ours, path) or _is_within(path, ours):
            return ours
    return None


def _settled(path: str) -> str:
    # Two leading slashes are kept by POSIX, and mean nothing here.
    path = posixpath.normpath("/" + path.lstrip("/"))
    # In nearly every image /var/run leads to /run.
    if _is_within(path, "/var/run"):
        return path.removeprefix("/var")
    return path


def _is_within(path: str, folder: str) -> bool:
    return folder == "/" or path == folder or path.startswith(folder + "/")
