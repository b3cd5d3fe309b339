// Shows the version selector if versions.json lists more than one version.

const root = new URL(document.documentElement.dataset.content_root, document.baseURI);
const selector = document.querySelector(".versions");

async function showVersions() {
  // Revalidated, because the file changes with each release.
  const response = await fetch(new URL("versions.json", root), { cache: "no-cache" });
  const versions = response.ok ? await response.json() : [];
  if (versions.length < 2) return;
  const select = selector.querySelector("select");
  for (const { version, folder } of versions) {
    const own = new URL(folder, root).href === root.href;
    select.add(new Option(version, folder, own, own));
  }
  select.addEventListener("change", () => openVersion(select.value));
  selector.hidden = false;
}

// Opens the current page in another version, or the version's front page if it lacks the page.
async function openVersion(folder) {
  const other = new URL(folder, root);
  const page = new URL(location.pathname.slice(root.pathname.length), other);
  const found = await fetch(page, { method: "HEAD" });
  location.href = found.ok ? page.href : other.href;
}

// Opened as a file, the site has no version selector.
if (selector && root.protocol !== "file:") showVersions();
