//! The table on the terminal: nccl-tests' columns, so that users of nccl-tests can read it, and
//! after them the median and the 99th percentile of single calls. Knows nothing of how it was
//! measured.

use super::inputs::Inputs;
use super::operation::Form;
use super::results::{CaseReport, MeasuredCase, MemoryReport, StartReport};

/// What one block of columns is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Column {
    pub(super) form: Form,
    pub(super) inputs: Inputs,
}

/// What the rows of one table have in common.
#[derive(Clone, Debug)]
pub(super) struct Table {
    /// What is measured of each size, in the order of the columns.
    pub(super) columns: Vec<Column>,
    /// Letters of the longest contender's name; 0 where there is but one.
    pub(super) name_width: usize,
}

/// The texts of the columns that say what a case is.
#[derive(Clone, Copy, Debug, Default)]
struct CaseColumns<'a> {
    contender: &'a str,
    bytes: &'a str,
    count: &'a str,
    dtype: &'a str,
    reduction: &'a str,
    root: &'a str,
}

impl Table {
    /// The lines above the first row.
    pub(super) fn header(&self) -> Vec<String> {
        let names = CaseColumns {
            bytes: "size",
            count: "count",
            dtype: "type",
            reduction: "redop",
            root: "root",
            ..CaseColumns::default()
        };
        let units = CaseColumns { bytes: "(B)", count: "(elements)", ..CaseColumns::default() };
        let mut forms = format!("#{:1$}", "", self.case_columns(&units).len() - 1);
        let [mut names, mut units] =
            [names, units].map(|columns| format!("#{}", &self.case_columns(&columns)[1..]));
        for column in &self.columns {
            let form = match column.form {
                Form::OutOfPlace => "out-of-place",
                Form::InPlace => "in-place",
            };
            let above = format!("{form}, inputs {}", column.inputs.name());
            let begin = names.len();
            names.push_str(&block(["time", "algbw", "busbw", "#wrong", "median", "p99"]));
            units.push_str(&block(["(us)", "(GB/s)", "(GB/s)", "", "(us)", "(us)"]));
            if column.inputs == Inputs::Rewritten {
                names.push_str(&format!("{:>11}", "write"));
                units.push_str(&format!("{:>11}", "(us)"));
            }
            if self.compares() {
                names.push_str(&format!("{:>9}", "ratio"));
                units.push_str(&format!("{:>9}", ""));
            }
            forms.push_str(&format!("{above:^0$}", names.len() - begin));
        }
        [forms, names, units].map(|line| line.trim_end().to_owned()).into()
    }

    /// The rows of one size: one for each contender. `cases` are its forms, in order.
    pub(super) fn rows(&self, cases: &[CaseReport]) -> Vec<String> {
        let Some(first) = cases.first() else { return Vec::new() };
        let mut contenders: Vec<&str> = Vec::new();
        for result in cases.iter().flat_map(|case| &case.results) {
            if !contenders.contains(&result.contender.as_str()) {
                contenders.push(&result.contender);
            }
        }
        contenders.iter().map(|contender| self.row(first, cases, contender)).collect()
    }

    fn row(&self, first: &CaseReport, cases: &[CaseReport], contender: &str) -> String {
        let root = match (first.operation.has_root(), first.root) {
            (false, _) => "-1".to_owned(),
            (true, Some(root)) => root.to_string(),
            (true, None) => "all".to_owned(),
        };
        let reduction = first.reduction.map_or("none", |reduction| reduction.name());
        let mut row = self.case_columns(&CaseColumns {
            contender,
            bytes: &first.bytes.to_string(),
            count: &first.count.to_string(),
            dtype: &first.dtype,
            reduction,
            root: &root,
        });
        for column in &self.columns {
            let is_it =
                |case: &&CaseReport| case.form == column.form && case.inputs == column.inputs;
            let case = cases.iter().find(is_it);
            let mut results = case.iter().flat_map(|case| &case.results);
            let result = results.find(|result| result.contender == contender);
            row.push_str(&result.map_or_else(|| block(["N/A"; 6]), cells));
            let number = |value: Option<f64>| value.map(significant).unwrap_or_default();
            if column.inputs == Inputs::Rewritten {
                row.push_str(&format!("{:>11}", number(result.and_then(|it| it.rewrite_us))));
            }
            if self.compares() {
                row.push_str(&format!("{:>9}", number(result.and_then(|it| it.ratio))));
            }
        }
        row.trim_end().to_owned()
    }

    /// The columns in front of the measured ones, which say what the case is.
    fn case_columns(&self, columns: &CaseColumns<'_>) -> String {
        let CaseColumns { contender, bytes, count, dtype, reduction, root } = columns;
        let mut line = String::new();
        if self.compares() {
            line = format!("  {contender:<0$}", self.name_width);
        }
        line.push_str(&format!("{bytes:>12}{count:>14}{dtype:>10}{reduction:>8}{root:>8}"));
        line
    }

    fn compares(&self) -> bool {
        self.name_width > 0
    }
}

/// The lines below the last row of a table: nccl-tests' two lines, the second for each contender.
pub(super) fn footer(cases: &[CaseReport]) -> Vec<String> {
    let results = || cases.iter().flat_map(|case| &case.results);
    let wrong: u64 = results().filter_map(|result| result.wrong).sum();
    let is_checked = results().any(|result| result.wrong.is_some());
    let verdict = match (is_checked, wrong) {
        (false, _) => "not checked".to_owned(),
        (true, 0) => "0 OK".to_owned(),
        (true, wrong) => format!("{wrong} FAILED"),
    };
    let mut lines = vec![format!("# Out of bounds values : {verdict}")];
    for inputs in Inputs::ALL {
        let measured = || cases.iter().filter(|case| case.inputs == inputs);
        let mut contenders: Vec<&str> = Vec::new();
        for result in measured().flat_map(|case| &case.results) {
            if !contenders.contains(&result.contender.as_str()) {
                contenders.push(&result.contender);
            }
        }
        for contender in contenders {
            let results = measured().flat_map(|case| &case.results);
            let rates = results.filter(|result| result.contender == contender);
            let rates: Vec<f64> = rates.map(|result| result.busbw_gbps).collect();
            let mean = significant(rates.iter().sum::<f64>() / rates.len() as f64);
            let inputs = inputs.name();
            lines.push(format!("# Avg bus bandwidth    : {mean} GB/s, {contender}, {inputs}"));
        }
    }
    lines
}

/// How ranks start together where inputs are rewritten: lines below the tables of one number of
/// ranks.
pub(super) fn start_lines<'a>(reports: impl Iterator<Item = &'a StartReport>) -> Vec<String> {
    let line = |report: &StartReport| {
        format!(
            "# Common start         : {} us are part of each burst's time, {}",
            significant(report.empty_call_us),
            report.contender
        )
    };
    reports.map(line).collect()
}

/// The memory that ranks hold beside their buffers: lines below the tables of one number of ranks.
pub(super) fn memory_lines<'a>(reports: impl Iterator<Item = &'a MemoryReport>) -> Vec<String> {
    let line = |report: &MemoryReport| {
        let mib = report.most_bytes as f64 / f64::from(1 << 20);
        format!("# Memory of a rank     : {mib:.1} MiB beside its buffers, {}", report.contender)
    };
    reports.map(line).collect()
}

fn cells(result: &MeasuredCase) -> String {
    let wrong = result.wrong.map_or("N/A".to_owned(), |wrong| wrong.to_string());
    let times = [result.time_us, result.median_us, result.p99_us].map(significant);
    let rates = [result.algbw_gbps, result.busbw_gbps].map(|rate| format!("{rate:.2}"));
    block([&times[0], &rates[0], &rates[1], &wrong, &times[1], &times[2]])
}

fn block(cells: [&str; 6]) -> String {
    let [time, algbw, busbw, wrong, median, p99] = cells;
    format!("{time:>11}{algbw:>9}{busbw:>9}{wrong:>8}{median:>13}{p99:>14}")
}

/// A number with four significant digits, but never without those in front of the point.
pub(super) fn significant(value: f64) -> String {
    let digits = match value.abs() {
        size if size >= 1000.0 => 0,
        size if size >= 100.0 => 1,
        size if size >= 10.0 => 2,
        _ => 3,
    };
    format!("{value:.digits$}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::operation::Operation;
    use crate::bench::pattern::Reduction;
    use crate::bench::results::Turns;

    fn case(names: &[&str]) -> CaseReport {
        let measured = |name: &&str| {
            let turns = Turns {
                seconds: vec![2e-6 * (1.0 + name.len() as f64)],
                single_seconds: vec![3e-6],
                wrong: Some(0),
                ..Turns::default()
            };
            MeasuredCase::new(name, Operation::Allreduce, 1.0, 1024, &turns)
        };
        let mut case = CaseReport {
            operation: Operation::Allreduce,
            form: Form::InPlace,
            inputs: Inputs::Untouched,
            ranks: 2,
            bytes: 1024,
            count: 256,
            dtype: "f32".to_owned(),
            reduction: Some(Reduction::Sum),
            root: None,
            results: names.iter().map(measured).collect(),
        };
        case.compare(names[0]);
        case
    }

    fn columns(forms: &[Form]) -> Vec<Column> {
        let untouched = |form: &_| Column { form: *form, inputs: Inputs::Untouched };
        forms.iter().map(untouched).collect()
    }

    #[test]
    fn both_measures_stand_side_by_side_and_writing_has_a_column() {
        let both = Inputs::ALL.map(|inputs| Column { form: Form::InPlace, inputs });
        let table = Table { columns: both.to_vec(), name_width: 4 };
        let mut rewritten = case(&["a", "bcd"]);
        rewritten.inputs = Inputs::Rewritten;
        rewritten.results.iter_mut().for_each(|result| result.rewrite_us = Some(7.0));
        let (header, rows) = (table.header(), table.rows(&[rewritten, case(&["a", "bcd"])]));
        let end = |line: &str, word: &str| line.find(word).map(|at| at + word.len());
        assert_eq!(end(&header[1], "write"), end(&rows[1], "7.000"), "{header:?}\n{rows:?}");
        assert_eq!(rows[1].matches("0.500").count(), 2, "{rows:?}");
        let [first, second] = ["in-place, inputs rewritten", "in-place, inputs untouched"];
        assert!(header[0].find(first) < header[0].find(second), "{header:?}");
    }

    #[test]
    fn columns_stand_below_their_names() {
        let table = Table { columns: columns(&[Form::OutOfPlace, Form::InPlace]), name_width: 0 };
        let header = table.header();
        let row = &table.rows(&[case(&["a"])])[0];
        let end = |line: &str, word: &str| line.find(word).map(|at| at + word.len());
        assert_eq!(end(&header[1], "size"), end(row, "1024"));
        assert_eq!(end(&header[1], "redop"), end(row, "sum"));
        assert_eq!(end(&header[1], "root"), end(row, "-1"));
        // Nothing was measured out of place; in place it took 4 µs.
        assert_eq!(end(&header[1], "time"), end(row, "N/A"));
        let second = header[1].rfind("time").map(|at| at + 4);
        assert_eq!(second, end(row, "4.000"));
        assert_eq!(header[1].len(), row.len());
    }

    #[test]
    fn contenders_have_a_row_each_and_a_ratio() {
        let table = Table { columns: columns(&[Form::InPlace]), name_width: 4 };
        let rows = table.rows(&[case(&["a", "bcd"])]);
        assert_eq!(rows.len(), 2);
        assert!(rows[0].starts_with("  a ") && rows[0].ends_with("3.000"), "{rows:?}");
        assert!(rows[1].starts_with("  bcd ") && rows[1].ends_with("0.500"), "{rows:?}");
        assert!(table.header()[1].ends_with("ratio"));
    }

    #[test]
    fn wrong_values_are_summed_at_the_end() {
        let mut one = case(&["a"]);
        assert_eq!(footer(&[one.clone()])[0], "# Out of bounds values : 0 OK");
        one.results[0].wrong = Some(3);
        assert_eq!(footer(&[one.clone(), one])[0], "# Out of bounds values : 6 FAILED");
    }

    #[test]
    fn numbers_have_four_significant_digits() {
        let shown = [0.12345, 1.5, 12.345, 123.45, 12345.6].map(significant);
        assert_eq!(shown, ["0.123", "1.500", "12.35", "123.5", "12346"]);
    }
}
