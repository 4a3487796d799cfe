/// A store.
[Rooted]
interface Store {};
