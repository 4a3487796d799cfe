fn main() {
    let mut files = Vec::new();
    for e in std::fs::read_dir("idl").unwrap() {
        let p = e.unwrap().path();
        if p.extension().is_some_and(|x| x == "webidl") {
            files.push((p.display().to_string(), std::fs::read_to_string(&p).unwrap()));
        }
    }
    let api = polyrank_codegen::read(files).unwrap_or_else(|m| panic!("{}", m.render(false)));
    let root = std::env::args().nth(1).unwrap();
    for (path, text) in polyrank_codegen::languages::python::files(&api).unwrap() {
        let path = format!("{root}/{path}");
        std::fs::create_dir_all(std::path::Path::new(&path).parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
}
