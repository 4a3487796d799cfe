/// A store.
interface Store {
  long long num_keys();
};
