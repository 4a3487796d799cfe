//! One item of the model by its name, as JSON, for people who want to see what templates get.

use serde_json::{Value, to_value};

use super::api::Api;
use super::names::nearest;

impl Api {
    /// What has this name: `ProcessGroup`, `ProcessGroup.allreduce`, `AllreduceOptions.timeout`,
    /// `allreduce` (the collective and every method), `dtypes`. As JSON, indented.
    ///
    /// # Errors
    /// In words, with names that are near, if nothing has this name.
    pub fn find(&self, name: &str) -> Result<String, String> {
        let items = self.items();
        let same = |item: &&(String, Value)| {
            item.0 == name || item.0.rsplit_once('.').is_some_and(|(_, last)| last == name)
        };
        let found: Vec<&Value> = items.iter().filter(same).map(|(_, value)| value).collect();
        let shown = match found.as_slice() {
            [] => return Err(nothing(name, &items)),
            [only] => serde_json::to_string_pretty(only),
            several => serde_json::to_string_pretty(several),
        };
        shown.map_err(|error| format!("{name} cannot be shown as JSON: {error}"))
    }

    /// Every named item, `owner.member` for members.
    fn items(&self) -> Vec<(String, Value)> {
        let mut items = Vec::new();
        // The lists by their own names, their elements, and the elements' named parts.
        let Ok(Value::Object(lists)) = to_value(self) else { return items };
        for (list, value) in lists {
            let elements = value.as_array().cloned().unwrap_or_default();
            items.push((list.clone(), value));
            for element in elements {
                let Some(name) = name_of(&element) else { continue };
                for parts in element.as_object().into_iter().flat_map(|fields| fields.values()) {
                    let parts = parts.as_array().into_iter().flatten();
                    let named = parts.filter_map(|part| Some((name_of(part)?, part)));
                    items.extend(
                        named.map(|(part, value)| (format!("{name}.{part}"), value.clone())),
                    );
                }
                items.push((name, element));
            }
        }
        items
    }
}

fn name_of(value: &Value) -> Option<String> {
    let name = value.get("name").or_else(|| value.get("value"))?;
    name.as_str().map(str::to_owned)
}

fn nothing(name: &str, items: &[(String, Value)]) -> String {
    let last = |item: &'_ str| item.rsplit_once('.').map_or(0, |(owner, _)| owner.len() + 1);
    let names = items.iter().flat_map(|(item, _)| [item.as_str(), &item[last(item)..]]);
    match nearest(name, names) {
        Some(near) => format!("the IDL has nothing called `{name}`; did you mean `{near}`?"),
        None => {
            let lists = items.iter().map(|(item, _)| item.as_str());
            let top: Vec<&str> = lists.filter(|item| !item.contains('.')).collect();
            format!("the IDL has nothing called `{name}`; it has {}", top.join(", "))
        }
    }
}
