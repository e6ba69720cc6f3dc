//! Sources of machines: providers, hardware types and image types.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use super::common::{DocumentInfo, texts};

/// An account at a source of machines.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Provider {
    #[serde(flatten)]
    pub info: DocumentInfo,
    /// Name of the plugin for it.
    pub providertype: String,
    /// Settings of the plugin, such as a region.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub provisioner: IndexMap<String, serde_json::Value>,
}

/// Settings of a hardware or image type at one provider.
pub type Offer = IndexMap<String, String>;

/// A machine size, and its name at each provider.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HardwareType {
    #[serde(flatten)]
    pub info: DocumentInfo,
    #[serde(default, deserialize_with = "offers")]
    pub providermap: IndexMap<String, Offer>,
    /// Properties such as `zone` or `rack`, for rules that spread services.
    #[serde(default, deserialize_with = "texts", skip_serializing_if = "IndexMap::is_empty")]
    pub labels: IndexMap<String, String>,
}

impl HardwareType {
    /// The provider's own name for it. Without one, the provider does not offer this hardware.
    pub fn flavor(&self, provider: &str) -> Option<&str> {
        self.setting(provider, "flavor")
    }

    /// Cost of one machine, in the unit that the administrator chose.
    pub fn cost(&self, provider: &str) -> Option<f64> {
        amount(self.setting(provider, "cost")?)
    }

    /// Number of virtual processors.
    pub fn vcpu(&self, provider: &str) -> Option<f64> {
        amount(self.setting(provider, "vcpu")?)
    }

    /// Memory, in the unit that services use in `resources.ram`.
    pub fn ram(&self, provider: &str) -> Option<f64> {
        amount(self.setting(provider, "ram")?)
    }

    fn setting(&self, provider: &str, key: &str) -> Option<&str> {
        let text = self.providermap.get(provider)?.get(key)?;
        Some(text.as_str()).filter(|text| !text.is_empty())
    }
}

/// An operating system, and its name at each provider.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ImageType {
    #[serde(flatten)]
    pub info: DocumentInfo,
    #[serde(default, deserialize_with = "offers")]
    pub providermap: IndexMap<String, Offer>,
}

impl ImageType {
    /// The provider's own name for it. Without one, the provider does not offer this image.
    pub fn image(&self, provider: &str) -> Option<&str> {
        let text = self.providermap.get(provider)?.get("image")?;
        Some(text.as_str()).filter(|text| !text.is_empty())
    }

    /// Account for the first login.
    pub fn ssh_user(&self, provider: &str) -> &str {
        let user = self.providermap.get(provider).and_then(|offer| offer.get("sshuser"));
        user.map_or("root", String::as_str)
    }
}

/// Settings of a hardware type that are amounts.
pub(super) const AMOUNTS: [&str; 3] = ["cost", "vcpu", "ram"];
/// Exclusive upper bound of amounts.
const AMOUNT_MAX: f64 = 1e9;

/// A number of at least zero, without a unit, because documents do not specify one.
pub(super) fn amount(text: &str) -> Option<f64> {
    let is_part = |c: char| c.is_ascii_digit() || ".eE+-".contains(c);
    let text = text.trim();
    let value: f64 = text.parse().ok().filter(|_| text.chars().all(is_part))?;
    (0.0..AMOUNT_MAX).contains(&value).then_some(value)
}

fn offers<'de, D>(deserializer: D) -> Result<IndexMap<String, Offer>, D::Error>
where
    D: serde::Deserializer<'de>,
{
    #[derive(Deserialize)]
    struct Texts(#[serde(deserialize_with = "texts")] Offer);
    let offers = IndexMap::<String, Texts>::deserialize(deserializer)?;
    Ok(offers.into_iter().map(|(provider, Texts(offer))| (provider, offer)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_and_sizes_are_numbers_without_units() {
        assert_eq!(amount("0.25"), Some(0.25));
        assert_eq!(amount(" 4096 "), Some(4096.0));
        assert_eq!(amount("1000.0"), Some(1000.0));
        for wrong in ["$ 0.25/h", "4096 MB", "2GB", "4,5", "cheap", "-1", "", "inf", "NaN", "1e9"] {
            assert_eq!(amount(wrong), None, "{wrong}");
        }
    }
}
