//! Percentiles and spreads.

/// The value that `percent` of `values` do not exceed; 0 without values.
pub fn percentile(values: &mut [f64], percent: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let rank = (percent / 100.0 * values.len() as f64).ceil() as usize;
    values.get(rank.saturating_sub(1)).copied().unwrap_or_default()
}

/// A median between the least and the most.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// The least.
    pub min: f64,
    /// The median: the lower of the two in the middle.
    pub median: f64,
    /// The most.
    pub max: f64,
}

impl Spread {
    /// The spread of `values`, if there are any.
    pub fn of(mut values: Vec<f64>) -> Option<Self> {
        let median = percentile(&mut values, 50.0);
        Some(Self { min: *values.first()?, median, max: *values.last()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_occurred() {
        let mut values: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        assert_eq!(percentile(&mut values, 50.0), 50.0);
        assert_eq!(percentile(&mut values, 99.0), 99.0);
        assert_eq!(percentile(&mut values, 99.9), 100.0);
        assert_eq!(percentile(&mut [7.0], 99.0), 7.0);
        assert_eq!(percentile(&mut [], 50.0), 0.0);
    }
}
