/// A store.
[Since=0.1, Since=0.2]
interface Store {};
