//! The table of `polyrank bench store` on the terminal. Knows nothing of how it was measured.

use super::{Row, files};

/// How a server was started.
pub(super) fn setting(server: &str, setting: &str) {
    files::show(&format!("# {server}: {setting}\n"));
}

/// The lines above the first row.
pub(super) fn header() {
    let line = format!(
        "#{:>7}  {:<8}  {:<16}{:>12}{:>11}{:>11}{:>12}{:>12}{:>9}{:>9}",
        "clients",
        "request",
        "server",
        "per second",
        "median us",
        "p99 us",
        "connect ms",
        "KiB/client",
        "rate",
        "p99"
    );
    files::show(&(line + "\n"));
}

/// Rows by request; ratios are of the first of a request to the others.
pub(super) fn rows(rows: &[Row]) {
    for of_request in rows.chunk_by(|one, next| one.operation == next.operation) {
        for row in of_request {
            let memory = row.kib_per_client.map_or_else(String::new, |kib| format!("{kib:.1}"));
            let mut line = format!(
                "{:>8}  {:<8}  {:<16}{:>12.0}{:>11.1}{:>11.1}{:>12.1}{memory:>12}",
                row.clients,
                row.operation,
                row.server,
                row.per_second,
                row.median_us,
                row.p99_us,
                row.connect_ms
            );
            if row.server != of_request[0].server {
                let rate = of_request[0].per_second / row.per_second;
                let p99 = of_request[0].p99_us / row.p99_us;
                line.push_str(&format!("{rate:>8.2}x{p99:>8.2}x"));
            }
            files::show(&(line + "\n"));
        }
    }
}
