(() => {
  "use strict";
  const tools = document.getElementById("tools");
  const text = document.getElementById("filter");
  const failures = document.getElementById("failures");
  const shown = document.getElementById("shown");
  const calls = Array.from(document.querySelectorAll("details.call"), (element) => ({
    element,
    words: (element.dataset.find || "").toLowerCase(),
    failed: element.hasAttribute("data-failed"),
  }));
  const origins = Array.from(document.querySelectorAll("section.origin"), (element) => ({
    element,
    row: document.getElementById(element.id + "-row"),
    calls: calls.filter((call) => element.contains(call.element)),
  }));

  // Shows the calls that have every word of the filter, and the origins that have such calls.
  const apply = () => {
    const words = text.value.toLowerCase().split(/\s+/).filter(Boolean);
    const any = words.length > 0 || failures.checked;
    let count = 0;
    for (const call of calls) {
      const fits = (!failures.checked || call.failed) && words.every((word) => call.words.includes(word));
      call.element.hidden = !fits;
      count += fits ? 1 : 0;
    }
    for (const origin of origins) {
      const empty = any && origin.calls.every((call) => call.element.hidden);
      origin.element.hidden = empty;
      if (origin.row) origin.row.hidden = empty;
    }
    shown.textContent = count + " of " + calls.length + " calls";
  };

  // The filter is in the address, after "#", so that it can be linked and survives a reload.
  const load = () => {
    const hash = location.hash.slice(1);
    if (hash !== "" && !hash.includes("=")) return;
    const given = new URLSearchParams(hash);
    text.value = given.get("filter") || "";
    failures.checked = given.get("failures") === "1";
    apply();
    if (given.get("open") === "1") setAll(true);
  };
  const save = () => {
    const given = new URLSearchParams();
    if (text.value) given.set("filter", text.value);
    if (failures.checked) given.set("failures", "1");
    try {
      history.replaceState(null, "", "#" + given);
    } catch {
      // Browsers limit how often a page may do this.
    }
  };
  const setAll = (open) => {
    for (const call of calls) if (!call.element.hidden) call.element.open = open;
  };

  const change = () => { apply(); save(); };
  text.addEventListener("input", change);
  failures.addEventListener("change", change);
  tools.addEventListener("submit", (event) => event.preventDefault());
  document.getElementById("open").addEventListener("click", () => setAll(true));
  document.getElementById("close").addEventListener("click", () => setAll(false));
  document.getElementById("clear").addEventListener("click", () => {
    text.value = "";
    failures.checked = false;
    change();
    text.focus();
  });
  addEventListener("hashchange", load);
  tools.hidden = false;
  apply();
  load();
})();
