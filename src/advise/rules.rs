//! The rules of the policy file for one object, from the placement that was chosen and its reason.

use numamma_plan::policy::ObjectRule;

use super::scene::Scene;
use super::{choose, naming, note, numbered, phase_placements, processes};
use crate::detect::{Pattern, PatternKind};
use crate::profile::summary::{Entry, Numbers};

/// The rules of one object.
pub(super) struct Rules {
    pub rule: ObjectRule,
    /// Those of further instances, where instances are placed by number.
    pub more: Vec<ObjectRule>,
    /// Part of the time in which the program runs that they save.
    pub saved: f64,
    /// The reason to give where too little shows that they save anything, as in [`choose::Chosen`].
    pub even_so: Option<String>,
}

/// On what a rule for some instances of a call site depends.
fn by_order(numbers: &Numbers) -> String {
    format!(
        "the same call site allocates objects that are used otherwise; this rule is for {} by the order of allocation, and \
         right as long as the program keeps it",
        numbers.words()
    )
}

impl Scene<'_> {
    /// The rules of one hot object, or the reason why it has none. `taken` are the bytes on each node of the model that
    /// objects placed before occupy; those of this object are added.
    pub fn rule(&self, entry: &Entry, pattern: &Pattern, share: f64, taken: &mut [f64]) -> Result<Rules, String> {
        if self.target.nodes < 2 {
            return Err(format!("{}; the target has one node", pattern.evidence));
        }
        if self.roles.workers < 2 {
            return Err("one thread uses all objects, and first touch places them".into());
        }
        let phased = pattern;
        // A mixed object is placed once, for all of its functions.
        let pattern = if pattern.kind == PatternKind::Mixed { pattern } else { pattern.overall() };
        let choices = self.candidates_by_code(entry, phased)?;
        let mut rule = naming::name(self.summary, entry)?;
        rule.name = Some(entry.name.clone()).filter(|name| rule.global.as_ref() != Some(name));
        rule.size = Some(entry.part.as_ref().map_or(entry.size, |part| part.parent_size));
        rule.pattern = Some(note(pattern));
        let others = taken.to_vec();
        let advised = choose::choose(self, entry, pattern, choices, rule.pattern.as_ref(), taken);
        // Nor do parts of an allocation, which a policy cannot move.
        let is_range = entry.part.is_some() && entry.site.is_some();
        let by_number = advised.as_ref().is_ok_and(|a| a.choice.numbered.is_some());
        let whole = advised.as_ref().ok().map(|a| &a.choice.place);
        // Instances placed by number do not move between phases.
        let staged = if by_number || is_range {
            None
        } else {
            phase_placements::weigh(self, entry, phased, whole, rule.pattern.as_ref(), &others)
        };
        let pays = staged.as_ref().is_some_and(|s| !s.places.is_empty());
        let advised = match advised {
            Ok(advised) => Some(advised),
            Err(_) if pays => None,
            Err(reason) => {
                let sharing = processes::sharing(&self.summary.threads, entry);
                let no_blocks = processes::no_blocks(sharing, pattern).map(|why| format!("; {why}"));
                return Err(reason + no_blocks.as_deref().unwrap_or_default());
            }
        };
        let (mut words, mut numbered, mut saved): (Vec<String>, _, _) = (Vec::new(), None, 0.0);
        let (mut remark, mut even_so) = (None, None);
        if let Some(advised) = advised {
            saved += advised.saved;
            even_so = advised.even_so.filter(|_| !pays);
            rule.place = advised.choice.place;
            remark = advised.choice.remark;
            numbered = advised.choice.numbered;
        }
        if let Some(staged) = staged {
            saved += staged.saved;
            words.push(staged.words.clone());
            phase_placements::store_starts(&mut rule, staged);
        }
        words.extend(entry.numbers.as_ref().map(by_order));
        let why = |remark: Option<String>| {
            let words: String = remark.iter().chain(&words).map(|w| format!("; {w}")).collect();
            format!("{:.1} % of the cost; {}{words}", 100.0 * share, pattern.evidence)
        };
        rule.why = Some(why(remark));
        let even_so = even_so.map(|remark| why(Some(remark)));
        let more = numbered.map(|nodes| numbered::split(&mut rule, &nodes, self.target));
        Ok(Rules { rule, more: more.unwrap_or_default(), saved, even_so })
    }
}
