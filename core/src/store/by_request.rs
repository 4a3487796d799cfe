//! The methods of a store that answers each of them as a request, through its `ask`. Knows no
//! particular store.

/// Writes, in an `impl Store`, every method that is a request, by `self.ask(request)`.
macro_rules! methods_by_request {
    () => {
        fn set(&self, key: &str, value: &[u8]) -> Result<()> {
            self.ask(StoreRequest::Set { key, value })?.done()
        }

        fn get(&self, key: &str) -> Result<Vec<u8>> {
            self.ask(StoreRequest::Get { key })?.value()
        }

        fn add(&self, key: &str, amount: i64) -> Result<i64> {
            self.ask(StoreRequest::Add { key, amount })?.number()
        }

        fn append(&self, key: &str, value: &[u8]) -> Result<()> {
            self.ask(StoreRequest::Append { key, value })?.done()
        }

        fn check(&self, keys: &[&str]) -> Result<bool> {
            self.ask(StoreRequest::Check { keys })?.flag()
        }

        fn compare_set(&self, key: &str, expected: &[u8], desired: &[u8]) -> Result<Vec<u8>> {
            self.ask(StoreRequest::CompareSet { key, expected, desired })?.value()
        }

        fn delete_key(&self, key: &str) -> Result<bool> {
            self.ask(StoreRequest::DeleteKey { key })?.flag()
        }

        fn wait(&self, keys: &[&str], timeout: Option<Duration>) -> Result<()> {
            self.ask(StoreRequest::Wait { keys, timeout })?.done()
        }

        fn multi_get(&self, keys: &[&str]) -> Result<Vec<Vec<u8>>> {
            self.ask(StoreRequest::MultiGet { keys })?.values()
        }

        fn multi_set(&self, keys: &[&str], values: &[&[u8]]) -> Result<()> {
            self.ask(StoreRequest::MultiSet { keys, values })?.done()
        }

        fn num_keys(&self) -> Result<i64> {
            self.ask(StoreRequest::NumKeys)?.number()
        }

        fn list_keys(&self) -> Result<Vec<String>> {
            self.ask(StoreRequest::ListKeys)?.keys()
        }

        fn queue_push(&self, key: &str, value: &[u8]) -> Result<()> {
            self.ask(StoreRequest::QueuePush { key, value })?.done()
        }

        fn queue_pop(&self, key: &str, block: bool) -> Result<Vec<u8>> {
            self.ask(StoreRequest::QueuePop { key, block })?.value()
        }

        fn queue_len(&self, key: &str) -> Result<i64> {
            self.ask(StoreRequest::QueueLen { key })?.number()
        }

        fn barrier(&self, key: &str, world_size: u32, timeout: Option<Duration>) -> Result<()> {
            self.ask(StoreRequest::Barrier { key, world_size, timeout })?.done()
        }
    };
}
