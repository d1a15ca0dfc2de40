//! Quantities of Kubernetes (apimachinery `resource.Quantity`), as far as reservations need them.

use super::Fault;

/// Resources that kubelet can reserve.
pub const RESERVABLE: &[&str] = &["cpu", "memory", "ephemeral-storage", "pid"];

/// Checks a quantity that is not negative, and gives its value in thousandths of the unit, rounded up. Values beyond
/// `u128` are its greatest.
pub fn parse(text: &str) -> Result<u128, Fault> {
    let text = text.trim();
    let fault = || Fault::new(format!("{text:?} is no quantity"), "write for example \"100m\", \"2\" or \"512Mi\"");
    let unsigned = text.strip_prefix('+').unwrap_or(text);
    let end = unsigned.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(unsigned.len());
    let (number, suffix) = unsigned.split_at(end);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || number.len() > 30 || fraction.contains('.') {
        return Err(fault());
    }
    let (numerator, denominator) = scale(suffix).ok_or_else(fault)?;
    let digits: u128 = format!("{whole}{fraction}").parse().map_err(|_| fault())?;
    let places = 10u128.checked_pow(u32::try_from(fraction.len()).unwrap_or(u32::MAX)).ok_or_else(fault)?;
    let below = denominator.saturating_mul(places);
    Ok(digits.saturating_mul(1000).saturating_mul(numerator).div_ceil(below))
}

/// What a suffix multiplies by, as a fraction.
fn scale(suffix: &str) -> Option<(u128, u128)> {
    let binary = |power: u32| Some((1024u128.pow(power), 1));
    let decimal = |power: u32| Some((1000u128.pow(power), 1));
    match suffix {
        "" => Some((1, 1)),
        "n" => Some((1, 1_000_000_000)),
        "u" => Some((1, 1_000_000)),
        "m" => Some((1, 1000)),
        "k" => decimal(1),
        "M" => decimal(2),
        "G" => decimal(3),
        "T" => decimal(4),
        "P" => decimal(5),
        "E" => decimal(6),
        "Ki" => binary(1),
        "Mi" => binary(2),
        "Gi" => binary(3),
        "Ti" => binary(4),
        "Pi" => binary(5),
        "Ei" => binary(6),
        _ => {
            let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
            let power = 10u128.checked_pow(exponent.unsigned_abs()).filter(|_| exponent.abs() <= 18)?;
            Some(if exponent < 0 { (1, power) } else { (power, 1) })
        }
    }
}

/// CPU that is kept for kubelet by default, in thousandths: 60 for the first processor, 40 for the second, 20 for each of
/// the next two, 10 for each further.
pub fn default_cpu_milli(cpus: usize) -> u64 {
    (0..cpus.max(1))
        .map(|i| match i {
            0 => 60,
            1 => 40,
            2 | 3 => 20,
            _ => 10,
        })
        .sum()
}

/// Memory that is kept for kubelet by default, in MiB: 20 for each pod and 50, at most a quarter of the machine.
///
/// The quarter is rounded down to 16 MiB: what the kernel calls all of the memory differs by a little from one kernel to
/// the next, and the reservation is a part of the goal.
pub fn default_memory_mib(max_pods: u32, memory_bytes: u64) -> u64 {
    let quarter = memory_bytes / 4 / (16 << 20) * 16;
    (20 * u64::from(max_pods) + 50).min(quarter)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn quantities_are_read_as_kubernetes_reads_them() {
        for (text, milli) in [
            ("0", 0),
            ("1", 1000),
            ("100m", 100),
            ("0.5", 500),
            (".5", 500),
            ("5.", 5000),
            ("1Ki", 1_024_000),
            ("1k", 1_000_000),
            ("1e3", 1_000_000),
            ("1E-3", 1),
            ("1n", 1),
            ("+2", 2000),
            ("1.5Gi", 1_610_612_736_000),
            ("1E", 1_000_000_000_000_000_000_000),
        ] {
            assert_eq!(parse(text), Ok(milli), "{text}");
        }
        for text in ["", "-1", "1 Gi", "Mi", "1KB", "1GiB", "1..2", "1.2.3", "1e", "1e99", "0x10", ".", "m"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn defaults_follow_processors_pods_and_memory() {
        assert_eq!([0, 1, 2, 3, 4, 5, 16].map(default_cpu_milli), [60, 60, 100, 120, 140, 150, 260]);
        assert_eq!(default_memory_mib(110, 64 << 30), 2250);
        assert_eq!(default_memory_mib(110, 4 << 30), 1024);
        assert_eq!(default_memory_mib(110, (4 << 30) - 12_345), 1008);
        assert_eq!(default_memory_mib(30, 4 << 30), 650);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "[0-9+.a-zA-Z-]{0,40}") {
            let _ = parse(&text);
        }
        #[test]
        fn whole_numbers_are_exact(n in any::<u64>()) {
            prop_assert_eq!(parse(&n.to_string()), Ok(u128::from(n) * 1000));
        }
    }
}
