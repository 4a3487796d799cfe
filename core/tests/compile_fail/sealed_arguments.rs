//! What a method takes is the IDL's to say.

use polyrank::ProcessGroup;

struct Mine;

impl polyrank::arguments::AllreduceArguments for Mine {}

fn call(_: &ProcessGroup) {}

fn main() {
    let _ = call;
}
