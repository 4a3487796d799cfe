//! Places in the text of IDL files. Knows nothing of what stands there.

/// A range of bytes of one file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Span {
    /// Index of the file in [`Sources`].
    pub file: usize,
    /// The first byte.
    pub start: usize,
    /// The byte after the last.
    pub end: usize,
}

impl Span {
    /// From the start of `self` to the end of `last`, which is in the same file.
    pub fn to(self, last: Span) -> Span {
        Span { file: self.file, start: self.start, end: last.end.max(self.start) }
    }

    /// The empty place right after `self`.
    pub fn after(self) -> Span {
        Span { start: self.end, ..self }
    }
}

/// Names and texts of all files that are read together.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    files: Vec<(String, String)>,
}

impl Sources {
    /// Of (name, text) pairs, in this order.
    pub fn new(files: Vec<(String, String)>) -> Sources {
        Sources { files }
    }

    /// Indices of the files.
    pub fn indices(&self) -> std::ops::Range<usize> {
        0..self.files.len()
    }

    /// The file's name; empty if there is no such file.
    pub fn name(&self, file: usize) -> &str {
        self.files.get(file).map_or("", |(name, _)| name)
    }

    /// The file's text; empty if there is no such file.
    pub fn text(&self, file: usize) -> &str {
        self.files.get(file).map_or("", |(_, text)| text)
    }

    /// The line, from 1, on which `span` starts.
    pub fn line(&self, span: Span) -> usize {
        let before = self.text(span.file).as_bytes().get(..span.start).unwrap_or_default();
        1 + before.iter().filter(|&&byte| byte == b'\n').count()
    }
}
