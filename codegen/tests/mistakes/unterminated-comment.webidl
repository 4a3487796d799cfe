/// A store.
interface Store {};

/* The rest of the file.
