//! Tells the linker what an addon of Node needs.

fn main() {
    napi_build::setup();
}
