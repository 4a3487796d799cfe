    from polyrank._enums import BackendType as BackendType

    UNDEFINED: ClassVar[BackendType]
    GLOO: ClassVar[BackendType]
    NCCL: ClassVar[BackendType]
    UCC: ClassVar[BackendType]
    MPI: ClassVar[BackendType]
    XCCL: ClassVar[BackendType]
    CUSTOM: ClassVar[BackendType]
    def __enter__(self) -> Self: ...
    def __exit__(self, kind: object, error: object, traceback: object, /) -> None: ...
