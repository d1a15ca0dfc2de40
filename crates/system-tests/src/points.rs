//! The places at which the crash suite makes an operation end, fail or hang: all of them, and a choice of them by a seed.

use serde_json::Value;
use std::fmt;

/// What happens there, as fail points name it.
const ACTIONS: [&str; 3] = ["crash", "error", "hang"];
const SIDES: [&str; 2] = ["before", "after"];
/// One in so many of those that do not always run.
const PART: usize = 5;

/// One place and what happens there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Point {
    /// The operation.
    pub operation: String,
    /// The step.
    pub step: String,
    /// The step is one of the way back, which `trigger` makes it go.
    pub trigger: Option<String>,
    /// `before` or `after`.
    pub side: &'static str,
    /// `crash`, `error` or `hang`.
    pub action: &'static str,
}

impl Point {
    /// Whether the process ends there, so that another one has to go on.
    pub fn crashes(&self) -> bool {
        self.action == "crash"
    }

    /// These always run.
    fn is_basic(&self) -> bool {
        self.crashes() && self.side == "before"
    }
}

/// As the variable of fail points takes it.
impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { operation, step, trigger, side, action } = self;
        match trigger {
            None => write!(f, "{operation}/{step}/{side}={action}"),
            Some(first) => write!(f, "{operation}/{first}/before=error;{operation}.rollback/{step}/{side}={action}"),
        }
    }
}

/// All points of a plan, as `plan --output json` prints it. A way back is gone from each of its beginnings in turn.
pub fn of_plan(plan: &Value) -> Vec<Point> {
    let operation = plan["operation"].as_str().unwrap_or_default();
    let steps = plan["steps"].as_array().map(Vec::as_slice).unwrap_or_default();
    let name = |step: &Value| step["step"].as_str().unwrap_or_default().to_owned();
    let forth = |step: &&Value| step["rollback"] == false;
    let beginnings: Vec<String> =
        steps.iter().filter(forth).filter(|step| step["afterCrash"] == "rollBack").map(name).collect();
    let mut points = Vec::new();
    for (index, step) in steps.iter().enumerate() {
        for (side, action) in SIDES.iter().flat_map(|side| ACTIONS.map(|action| (*side, action))) {
            let trigger = if forth(&step) {
                None
            } else if let Some(first) = beginnings.get((index + points.len()) % beginnings.len().max(1)) {
                Some(first.clone())
            } else {
                continue;
            };
            points.push(Point { operation: operation.to_owned(), step: name(step), trigger, side, action });
        }
    }
    points
}

/// Crashes before every step, and of the rest a fifth that the seed chooses; with `all` everything. The order is kept.
pub fn choose(points: &[Point], seed: u64, all: bool) -> Vec<Point> {
    let mut rest: Vec<usize> = (0..points.len()).filter(|index| !points[*index].is_basic()).collect();
    let mut random = Random(seed);
    for last in (1..rest.len()).rev() {
        rest.swap(last, random.below(last + 1));
    }
    rest.truncate(rest.len().div_ceil(PART));
    let wanted = |index: &usize| all || points[*index].is_basic() || rest.contains(index);
    (0..points.len()).filter(wanted).map(|index| points[index].clone()).collect()
}

/// Numbers that a seed gives: `SplitMix64` (Steele, Lea and Flood, "Fast splittable pseudorandom number generators").
#[derive(Clone, Copy, Debug)]
pub struct Random(pub u64);

impl Random {
    /// The next number below `limit`, which is not 0.
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % limit as u64).unwrap_or(0)
    }
}

/// The seed of this run: that of the environment, else the time.
pub fn seed() -> u64 {
    let given = std::env::var("FLEXNODE_SEED").ok().and_then(|text| text.parse().ok());
    let now = || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(1, |time| time.as_secs());
    given.unwrap_or_else(now)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn plan() -> Value {
        let step =
            |name: &str, rollback: bool, after: &str| json!({"step": name, "rollback": rollback, "afterCrash": after});
        json!({"operation": "upgrade", "steps": [
            step("look", false, "close"), step("stop", false, "rollBack"), step("start", false, "rollBack"),
            step("start", true, "rollBack"),
        ]})
    }

    #[test]
    fn every_step_has_six_points_also_those_of_the_way_back() {
        let points = of_plan(&plan());
        assert_eq!(points.len(), 4 * 6);
        assert_eq!(points[0].to_string(), "upgrade/look/before=crash");
        let back: Vec<&Point> = points.iter().filter(|point| point.trigger.is_some()).collect();
        assert_eq!(back.len(), 6);
        for point in back {
            let text = point.to_string();
            let (first, second) = text.split_once(';').unwrap();
            assert!(["upgrade/stop/before=error", "upgrade/start/before=error"].contains(&first), "{text}");
            assert!(second.starts_with("upgrade.rollback/start/"), "{text}");
        }
    }

    #[test]
    fn the_seed_chooses_a_fifth_of_what_does_not_always_run() {
        let points = of_plan(&plan());
        let chosen = choose(&points, 7, false);
        assert_eq!(chosen, choose(&points, 7, false));
        assert_ne!(chosen, choose(&points, 8, false));
        assert_eq!(chosen.iter().filter(|point| point.is_basic()).count(), 4);
        assert_eq!(chosen.len(), 4 + 4);
        assert_eq!(choose(&points, 7, true), points);
    }
}
