"""`group` and `GroupMember`: where c10d keeps the default group, and the value for a non-member."""

from polyrank import _core
from polyrank._core import NonGroupMember, ProcessGroup

__all__ = ["GroupMember", "group"]


class _Members(type):
    @property
    def WORLD(cls) -> ProcessGroup | None:
        """The default group; None before `init_process_group`."""
        return _core.default_group() if _core.is_initialized() else None

    @property
    def NON_GROUP_MEMBER(cls) -> NonGroupMember:
        """What `new_group` returns on a rank that is not in the new group."""
        # Not part of the API, so it is not in the stub.
        outside: NonGroupMember = getattr(_core, "_NON_GROUP_MEMBER")
        return outside


class group(metaclass=_Members):
    """`group.WORLD` is the default group."""


class GroupMember(metaclass=_Members):
    """`GroupMember.NON_GROUP_MEMBER` is what `new_group` returns on a rank that is not in it."""
