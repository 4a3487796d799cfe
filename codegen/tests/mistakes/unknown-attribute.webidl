/// A store.
[Sinse=0.1]
interface Store {};
