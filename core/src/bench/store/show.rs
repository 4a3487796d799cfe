//! The table of `polyrank bench store` on the terminal. Knows nothing of how it was measured.

use super::Row;

/// The lines above the first row.
pub(super) fn header(compares: bool) {
    let mut line = format!(
        "#{:>7}  {:<8}  {:<16}{:>12}{:>11}{:>11}{:>12}{:>12}",
        "clients",
        "request",
        "server",
        "per second",
        "median us",
        "p99 us",
        "connect ms",
        "KiB/client"
    );
    if compares {
        line.push_str(&format!("{:>9}{:>9}", "rate", "p99"));
    }
    println!("{line}");
}

/// Rows by request, `servers` for each; ratios are of the first to the others.
pub(super) fn rows(rows: &[Row], servers: usize) {
    for of_request in rows.chunks(servers.max(1)) {
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
            println!("{line}");
        }
    }
}
