//! The two text formats of metrics: OpenMetrics and the older Prometheus text format; the client selects one.
//!
//! prometheus-client writes OpenMetrics only (client_rust#51). The older format differs in its comments: a counter has
//! the name of its sample, and there is no type `info`, no unit and no end. Must not know metrics.

use std::fmt::Write;

/// A text format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MetricsFormat {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// Prometheus text 0.0.4.
    Text,
}

impl MetricsFormat {
    /// The format that an `Accept` header selects: text unless it names OpenMetrics, since every client reads text.
    pub fn accepted(header: &str) -> MetricsFormat {
        let mut best = [0.0_f64; 2];
        for range in header.split(',') {
            let mut parts = range.split(';').map(str::trim);
            let kind = parts.next().unwrap_or_default().to_ascii_lowercase();
            let (mut quality, mut version) = (1.0_f64, None);
            for (key, value) in parts.filter_map(|part| part.split_once('=')) {
                match key.trim() {
                    "q" => quality = value.trim().parse().unwrap_or(0.0),
                    "version" => version = Some(value.trim().trim_matches('"')),
                    _ => {}
                }
            }
            match kind.as_str() {
                "application/openmetrics-text" if version.is_none_or(|version| version == "1.0.0") => {
                    best[0] = quality.max(best[0]);
                }
                "text/plain" => best[1] = quality.max(best[1]),
                _ => {}
            }
        }
        if best[0] > 0.0 && best[0] >= best[1] { MetricsFormat::OpenMetrics } else { MetricsFormat::Text }
    }

    /// Its `Content-Type`.
    pub fn content_type(self) -> &'static str {
        match self {
            MetricsFormat::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            MetricsFormat::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// Converts a page of OpenMetrics to this format.
    pub fn write(self, page: String) -> String {
        match self {
            MetricsFormat::OpenMetrics => page,
            MetricsFormat::Text => text(&page),
        }
    }
}

fn text(page: &str) -> String {
    let mut out = String::with_capacity(page.len());
    let mut help = None;
    for line in page.lines() {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            // The type line comes next; it has the name that the help line needs.
            (Some("#"), Some("HELP"), Some(_), text) => help = text,
            (Some("#"), Some("TYPE"), Some(name), Some(kind)) => {
                let (end, kind) = match kind {
                    "counter" => ("_total", "counter"),
                    "info" => ("_info", "gauge"),
                    "unknown" => ("", "untyped"),
                    other => ("", other),
                };
                if let Some(help) = help.take() {
                    let _ = writeln!(out, "# HELP {name}{end} {help}");
                }
                let _ = writeln!(out, "# TYPE {name}{end} {kind}");
            }
            (Some("#"), ..) => {}
            _ => {
                out.push_str(line);
                out.push('\n');
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_is_served_and_text_to_all_others() {
        // The header that Debian's Prometheus 2.42 sends.
        let prometheus = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;\
                          q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        assert_eq!(MetricsFormat::accepted(prometheus), MetricsFormat::OpenMetrics);
        assert_eq!(
            MetricsFormat::accepted("Application/OpenMetrics-Text; version=\"1.0.0\" ; q=0.9"),
            MetricsFormat::OpenMetrics
        );
        for text in [
            "",
            "*/*",
            "text/plain",
            "application/openmetrics-text;q=0",
            "application/openmetrics-text;version=2.0.0",
            "application/openmetrics-text;q=0.1,text/plain;q=0.5",
            "application/openmetrics-text;q=much",
            ";;;,,,q==;",
        ] {
            assert_eq!(MetricsFormat::accepted(text), MetricsFormat::Text, "{text}");
        }
    }

    #[test]
    fn the_older_format_calls_counters_by_their_samples_names() {
        let page = "# HELP a_bytes Some # HELP b\\nytes.\n# TYPE a_bytes counter\n# UNIT a_bytes bytes\n\
                    a_bytes_total{t=\"# TYPE x\"} 5\n# HELP b Built.\n# TYPE b info\nb_info{v=\"1\"} 1\n\
                    # HELP c Level.\n# TYPE c gauge\nc 1.5\n# EOF\n";
        assert_eq!(
            text(page),
            "# HELP a_bytes_total Some # HELP b\\nytes.\n# TYPE a_bytes_total counter\n\
             a_bytes_total{t=\"# TYPE x\"} 5\n# HELP b_info Built.\n# TYPE b_info gauge\nb_info{v=\"1\"} 1\n\
             # HELP c Level.\n# TYPE c gauge\nc 1.5\n"
        );
        assert_eq!(MetricsFormat::OpenMetrics.write(page.to_owned()), page);
    }
}
