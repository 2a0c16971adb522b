//! What an advice says of each object, and of those that have no verdict of their own.

use numamma_plan::policy::ObjectRule;

use crate::detect::Pattern;
use crate::detect::limits::HOT_SHARE;

/// One object with its rule or the reason why it has none.
#[derive(Debug, Clone, PartialEq)]
pub struct Item {
    /// Name for messages.
    pub name: String,
    /// Share of the run's cost, 0 to 1.
    pub share: f64,
    /// Its pattern; none for groups of objects.
    pub pattern: Option<Pattern>,
    /// The rule, or why there is none.
    pub rule: Result<ObjectRule, String>,
    /// Part of the time in which the program runs that its rules are predicted to save, 0 to 1; 0 without rules.
    pub saved: f64,
    /// More rules, for other instances of the same call site. Without a rule: those that keep rules of others away.
    pub more: Vec<ObjectRule>,
}

impl Item {
    /// All its rules.
    pub fn rules(&self) -> impl Iterator<Item = &ObjectRule> {
        self.rule.iter().chain(&self.more)
    }
}

/// An item with the entry it is about.
pub(super) struct Draft {
    pub entry: Option<usize>,
    pub item: Item,
    /// Part of the time in which the program runs that its rules save; 0 without rules.
    pub saved: f64,
    /// The reason to give for its rule where too little shows that it saves anything; none where it has no rule then.
    pub even_so: Option<String>,
}

/// Objects without an item of their own: how many, and their share of the cost.
#[derive(Default)]
pub(super) struct Group {
    count: usize,
    share: f64,
}

impl Group {
    pub fn add(&mut self, share: f64) {
        self.count += 1;
        self.share += share;
    }
}

/// What the advice says of them.
#[derive(Default)]
pub(super) struct Groups {
    pub stacks: Group,
    pub unknown: Group,
    pub cold: Group,
    pub left_out: Group,
}

impl Groups {
    pub fn drafts(self) -> impl Iterator<Item = Draft> {
        let cold = format!("{} cold objects", self.cold.count);
        let below =
            format!("each has under {:.0} % of the cost, and no placement of one would gain enough", 100.0 * HOT_SHARE);
        let left_out = format!("{} objects that are left out", self.left_out.count);
        let groups = [
            (self.left_out, left_out, "by --include or --exclude".to_owned()),
            (
                self.stacks,
                "stacks and thread-local data".to_owned(),
                "first touch by their own thread places them".to_owned(),
            ),
            (
                self.unknown,
                "addresses of no known object".to_owned(),
                "a policy can only name known objects".to_owned(),
            ),
            (self.cold, cold, below),
        ];
        groups.into_iter().filter(|(group, ..)| group.count > 0 && group.share > 0.0).map(|(group, name, reason)| {
            let item =
                Item { name, share: group.share, pattern: None, rule: Err(reason), saved: 0.0, more: Vec::new() };
            Draft { entry: None, item, saved: 0.0, even_so: None }
        })
    }
}
