"use strict";
(() => {
  const root = document.documentElement;
  const find = (query, all) => (all ? [...document.querySelectorAll(query)] : document.querySelector(query));
  const store = { get: k => { try { return localStorage.getItem(k); } catch { return null; } },
                  set: (k, v) => { try { localStorage.setItem(k, v); } catch { /* a page from a file may have no store */ } } };

  // light and dark
  const dark = () => root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  const turn = () => { root.dataset.theme = dark() ? "light" : "dark"; store.set("stripec-theme", root.dataset.theme); };
  const saved = store.get("stripec-theme");
  if (saved === "light" || saved === "dark") root.dataset.theme = saved;
  find("#theme").addEventListener("click", turn);

  // help
  const help = find("#help");
  find("#help-open").addEventListener("click", () => help.showModal());

  // links into folded parts
  const open = element => { for (let at = element; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true; };
  const show = element => {
    open(element);
    element.scrollIntoView({ block: element.tagName === "DETAILS" || element.tagName === "SECTION" ? "start" : "center" });
    element.classList.add("flash");
    setTimeout(() => element.classList.remove("flash"), 1600);
  };
  const follow = () => {
    const target = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (target) { open(target); target.scrollIntoView(); }
  };
  addEventListener("hashchange", follow);
  document.addEventListener("click", event => {
    const link = event.target.closest && event.target.closest("a[href^='#']");
    if (link && link.getAttribute("href") === location.hash) follow();
  });
  follow();

  // j and k
  const passes = find("details.pass", true);
  let at = -1;
  const step = by => {
    if (!passes.length) return;
    const now = passes.findIndex(p => "#" + p.id === location.hash);
    at = Math.min(passes.length - 1, Math.max(0, (now >= 0 ? now : at) + by));
    passes[at].open = true;
    history.replaceState(null, "", "#" + passes[at].id);
    passes[at].scrollIntoView({ block: "start" });
    passes[at].querySelector("summary").focus({ preventScroll: true });
  };
  const toggle = () => { const some = find("main details:not(.fold)", true); const want = !some.every(d => d.open); for (const d of some) d.open = want; };

  // search
  const field = find("#search"), hits = find("#hits");
  let index = null, found = [], chosen = -1;
  const build = () => {
    const parts = find("main :is(tr, li, p, h2, h3, h4, figcaption, pre.text > span, details > summary)", true);
    return parts.filter(e => !e.querySelector("table, svg")).map(e => ({ e, text: e.textContent.toLowerCase() }));
  };
  const place = element => {
    const section = element.closest("section"), pass = element.closest("details.pass");
    const name = section ? section.querySelector("h2").textContent : "";
    return pass ? `${name}, ${pass.dataset.name}` : name;
  };
  const search = () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    hits.replaceChildren(); found = []; chosen = -1;
    hits.hidden = !words.length;
    if (!words.length) return;
    index = index || build();
    let count = 0;
    for (const { e, text } of index) {
      if (!words.every(w => text.includes(w))) continue;
      if (++count > 100) continue;
      found.push(e);
      const link = document.createElement("a"), where = document.createElement("small"), item = document.createElement("li");
      const first = Math.max(0, text.indexOf(words[0]) - 40);
      where.textContent = place(e);
      link.href = "#"; link.append(e.textContent.replace(/\s+/g, " ").slice(first, first + 130), where);
      link.addEventListener("click", event => { event.preventDefault(); go(found.indexOf(e)); });
      item.append(link); hits.append(item);
    }
    const note = document.createElement("li");
    note.className = "none";
    note.textContent = count > 100 ? `${count} places; the first 100 are listed` : count === 1 ? "1 place" : `${count} places`;
    hits.prepend(note);
  };
  const go = number => {
    if (!found.length) return;
    chosen = (number + found.length) % found.length;
    find("#hits a", true).forEach((a, n) => a.classList.toggle("at", n === chosen));
    const link = find("#hits a", true)[chosen];
    if (link) link.scrollIntoView({ block: "nearest" });
    show(found[chosen]);
  };
  let waiting = 0;
  field.addEventListener("input", () => { clearTimeout(waiting); waiting = setTimeout(search, 120); });
  field.addEventListener("keydown", event => {
    if (event.key === "Enter" || event.key === "ArrowDown") { event.preventDefault(); go(chosen + (event.shiftKey ? -1 : 1)); }
    if (event.key === "ArrowUp") { event.preventDefault(); go(chosen - 1); }
    if (event.key === "Escape") { hits.hidden = true; field.blur(); }
  });
  document.addEventListener("click", event => { if (!event.target.closest("#hits, #search")) hits.hidden = true; });

  // keys
  document.addEventListener("keydown", event => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, dialog")) return;
    const does = { j: () => step(1), k: () => step(-1), "/": () => { field.focus(); field.select(); }, "?": () => help.showModal(), t: turn, e: toggle };
    if (does[event.key]) { event.preventDefault(); does[event.key](); }
  });

  // tables that can be sorted
  for (const table of find("table.sortable", true)) {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      const button = head.querySelector("button");
      if (!button) return;
      button.addEventListener("click", () => {
        const up = head.getAttribute("aria-sort") !== "ascending";
        heads.forEach(other => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", up ? "ascending" : "descending");
        const value = row => { const text = row.cells[column].dataset.v ?? row.cells[column].textContent.trim(); return text === "" || isNaN(text) ? text : Number(text); };
        const rows = [...table.tBodies[0].rows].map((row, n) => [value(row), n, row]);
        rows.sort(([a, m], [b, n]) => {
          if (a === b) return m - n;
          if (a === "" || b === "") return a === "" ? 1 : -1; // what has no figure stays at the end
          const less = typeof a === typeof b ? a < b : typeof a === "number";
          return (less ? -1 : 1) * (up ? 1 : -1);
        });
        table.tBodies[0].append(...rows.map(([, , row]) => row));
      });
    });
  }

  // where the reader is
  const links = new Map(find("nav.side a[href^='#']", true).map(a => [a.getAttribute("href").slice(1), a]));
  if ("IntersectionObserver" in window) {
    const seen = new IntersectionObserver(entries => {
      for (const entry of entries) {
        const link = links.get(entry.target.id);
        if (link && entry.isIntersecting) {
          find("nav.side a[aria-current]", true).forEach(a => a.removeAttribute("aria-current"));
          link.setAttribute("aria-current", "true");
        }
      }
    }, { rootMargin: "-10% 0px -80% 0px" });
    find("main section", true).forEach(section => seen.observe(section));
  }
})();
