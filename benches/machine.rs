//! The machine and the day that figures were measured on.

/// Returns the number of cores and the name of the processor, as the system reports them.
pub(crate) fn name() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{cores} cores of {}", name.map_or("an unknown processor", |(_, name)| name))
}

/// Returns the date of the system's clock.
pub(crate) fn today() -> String {
    let date = httpdate::fmt_http_date(std::time::SystemTime::now());
    date.split(' ').skip(1).take(3).collect::<Vec<_>>().join(" ")
}
