"use strict";
(() => {
  // Each timeline draws its strips again for the part of the time that is seen: a pixel is exact at any zoom.
  const words = n => Number(n.toFixed(n % 1 ? 2 : 0)).toLocaleString("en-US");
  const STEPS = [1, 2, 5];

  const start = box => {
    const cycles = Number(box.dataset.cycles), drawn = Number(box.dataset.drawn);
    const rows = box.querySelector(".tl-rows"), over = box.querySelector(".tl-over"), ticks = box.querySelector(".tl-ticks");
    const range = box.querySelector(".tl-range"), read = box.querySelector(".tl-read");
    const names = [...box.querySelectorAll(".tl-blocks li span:last-child")].map(e => e.textContent);
    const tasks = [];
    for (const row of box.querySelectorAll("[data-unit]")) {
      for (const rect of row.querySelectorAll("rect")) {
        const begin = Number(rect.getAttribute("x")), wide = Number(rect.getAttribute("width"));
        const group = rect.parentNode, path = names[Number(group.dataset.b)] ?? group.querySelector("title").textContent;
        tasks.push({ rect, begin, end: begin + wide, path, unit: row.dataset.unit, waited: rect.dataset.s ?? "", many: rect.dataset.n ?? "" });
      }
    }
    tasks.sort((a, b) => a.begin - b.begin || a.end - b.end);
    const levels = [...box.querySelectorAll(".tl-memory")].map(row => {
      const path = row.querySelector("path"), steps = path.dataset.s.split(" ").filter(Boolean).map(s => s.split(",").map(Number));
      return { row, path, steps, top: Number(path.dataset.t) };
    });
    const strips = [...box.querySelectorAll(".tl-plot svg")];
    let from = 0, to = drawn, chosen = -1, saving = 0;

    const mark = span => {
      const least = span / Math.max(2, ticks.clientWidth / 110), power = 10 ** Math.floor(Math.log10(least));
      return Math.max(power * (STEPS.find(s => s * power >= least) ?? 10), 1);
    };
    const draw = () => {
      const wide = ticks.clientWidth || 900, scale = wide / (to - from), x = at => (at - from) * scale;
      for (const strip of strips) strip.setAttribute("viewBox", `0 0 ${wide} ${strip.getAttribute("height")}`);
      for (const task of tasks) {
        const seen = task.end >= from && task.begin <= to;
        task.rect.style.display = seen ? "" : "none";
        if (!seen) continue;
        const a = Math.max(-9, x(task.begin)), b = Math.min(wide + 9, x(task.end));
        task.rect.setAttribute("x", a.toFixed(2));
        task.rect.setAttribute("width", Math.max(b - a, 1).toFixed(2));
        task.rect.classList.toggle("apart", b - a > 5);
      }
      for (const { path, steps, top } of levels) {
        const high = Number(path.ownerSVGElement.getAttribute("height")), y = v => (high * (1 - v / top)).toFixed(1);
        let value = 0, text = "";
        for (const [at, size] of steps) {
          if (at > to) break;
          if (at > from) text += `H${x(at).toFixed(1)}V${y(size)}`; else value = size;
        }
        path.setAttribute("d", `M0 ${high}V${y(value)}${text}H${Math.min(wide, x(cycles)).toFixed(1)}V${high}Z`);
        for (const line of path.parentNode.querySelectorAll("line")) { line.setAttribute("x1", "0"); line.setAttribute("x2", wide); }
      }
      const step = mark(to - from), marks = [];
      for (let at = Math.ceil(from / step) * step; at <= to; at += step) marks.push(at);
      const place = at => `${(100 * (at - from) / (to - from)).toFixed(3)}%`;
      ticks.replaceChildren(...marks.map(at => {
        const text = document.createElement("span");
        text.style.left = place(at); text.textContent = words(at);
        if (x(at) < 34) text.style.transform = "none"; else if (wide - x(at) < 34) text.style.transform = "translateX(-100%)";
        return text;
      }));
      over.replaceChildren(...marks.map(at => {
        const line = document.createElement("i");
        line.style.left = place(at);
        return line;
      }));
      if (drawn < cycles && to > drawn) {
        const rest = document.createElement("u");
        rest.style.left = place(Math.max(drawn, from)); rest.title = "tasks from here on are not drawn";
        over.append(rest);
      }
      range.textContent = `${words(Math.round(from))} to ${words(Math.round(to))} of ${words(cycles)} cycles`;
      label();
    };
    const label = () => {
      for (const old of box.querySelectorAll(".tl-label")) old.remove();
      let room = 160;
      for (const task of tasks) {
        const a = Math.max(task.begin, from), b = Math.min(task.end, to);
        if (!room || (b - a) / (to - from) * ticks.clientWidth < 46) continue;
        const text = document.createElement("span");
        text.className = "tl-label"; text.textContent = task.path.slice(task.path.lastIndexOf("/") + 1);
        text.style.left = `${100 * (a - from) / (to - from)}%`; text.style.width = `${100 * (b - a) / (to - from)}%`;
        task.rect.ownerSVGElement.parentNode.append(text);
        room--;
      }
    };
    const see = (a, b, keep) => {
      const least = Math.min(8, drawn), span = Math.min(Math.max(b - a, least), cycles);
      from = Math.min(Math.max(a, 0), cycles - span); to = from + span;
      draw();
      clearTimeout(saving);
      if (keep) saving = setTimeout(() => history.replaceState(null, "", `#${box.id}=${Math.round(from)}-${Math.round(to)}`), 250);
    };
    const zoom = (by, at = (from + to) / 2) => see(at - (at - from) * by, at + (to - at) * by, true);
    const move = by => see(from + by * (to - from), to + by * (to - from), true);
    const tell = task => {
      const old = box.querySelector("rect.at");
      if (old) old.classList.remove("at");
      if (!task) return;
      task.rect.classList.add("at");
      const [waited, memory] = task.waited.split(" ");
      const [many, busy] = task.many.split(" ");
      const what = many ? `${words(Number(many))} tasks, busy ${words(Number(busy))} cycles, most of them in ${task.path}` : task.path;
      read.textContent = `${task.unit}: ${what}, ${words(task.begin)} to ${words(task.end)}, ${words(task.end - task.begin)} cycles${waited ? `, of which ${words(Number(waited))} waiting for ${memory}` : ""}`;
    };
    const step = by => {
      if (!tasks.length) return;
      const first = tasks.findIndex(t => t.end >= from);
      chosen = chosen < 0 ? Math.max(first, 0) : Math.min(tasks.length - 1, Math.max(0, chosen + by));
      const task = tasks[chosen], span = to - from;
      if (task.end < from || task.begin > to) see(task.begin - span / 2, task.begin + span / 2, true);
      tell(task);
    };
    const does = { in: () => zoom(.5), out: () => zoom(2), left: () => move(-.5), right: () => move(.5), all: () => see(0, drawn, true) };
    for (const button of box.querySelectorAll("[data-do]")) button.addEventListener("click", does[button.dataset.do]);
    box.addEventListener("keydown", event => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const keys = { "+": does.in, "=": does.in, "-": does.out, ArrowLeft: () => move(-.2), ArrowRight: () => move(.2), ArrowUp: () => step(-1), ArrowDown: () => step(1), Home: does.all };
      if (keys[event.key]) { event.preventDefault(); event.stopPropagation(); keys[event.key](); }
    });

    // the mouse: a cycle for each place
    const frame = () => ticks.getBoundingClientRect();
    const cycle = event => { const f = frame(); return from + (to - from) * Math.min(1, Math.max(0, (event.clientX - f.left) / f.width)); };
    const inside = event => event.clientX >= frame().left && event.clientX <= frame().right;
    let drag = null, picked = null;
    rows.addEventListener("pointerdown", event => {
      if (event.button || !inside(event)) return;
      drag = cycle(event);
      picked = document.createElement("b"); over.append(picked); picked.hidden = true;
      rows.setPointerCapture(event.pointerId);
    });
    rows.addEventListener("pointermove", event => {
      if (drag === null) {
        const rect = event.target.closest("rect");
        if (rect) { chosen = tasks.findIndex(t => t.rect === rect); tell(tasks[chosen]); }
        else {
          const row = event.target.closest(".tl-memory"), level = levels.find(l => l.row === row);
          if (level && inside(event)) {
            const at = cycle(event), value = level.steps.filter(s => s[0] <= at).at(-1)?.[1] ?? 0;
            tell(null); read.textContent = `${row.dataset.memory}: ${words(value)} bytes alive at cycle ${words(Math.round(at))}`;
          }
        }
        return;
      }
      const a = Math.min(drag, cycle(event)), b = Math.max(drag, cycle(event));
      picked.hidden = false;
      picked.style.left = `${100 * (a - from) / (to - from)}%`; picked.style.width = `${100 * (b - a) / (to - from)}%`;
    });
    const drop = event => {
      if (drag === null) return;
      const a = Math.min(drag, cycle(event)), b = Math.max(drag, cycle(event));
      drag = null; picked.remove();
      if ((b - a) / (to - from) * frame().width > 5) see(a, b, true);
    };
    rows.addEventListener("pointerup", drop);
    rows.addEventListener("pointercancel", () => { drag = null; if (picked) picked.remove(); });
    rows.addEventListener("dblclick", () => zoom(4));
    rows.addEventListener("wheel", event => {
      if (event.ctrlKey) { event.preventDefault(); zoom(event.deltaY > 0 ? 1.25 : .8, cycle(event)); }
      else if (event.shiftKey) { event.preventDefault(); move((event.deltaY || event.deltaX) > 0 ? .1 : -.1); }
    }, { passive: false });

    // links to a part of it
    const follow = () => {
      const found = location.hash.match(/^#(.+)=([0-9.]+)-([0-9.]+)$/);
      if (!found || found[1] !== box.id) return;
      see(Number(found[2]), Number(found[3]), false);
      box.scrollIntoView({ block: "start" });
    };
    addEventListener("hashchange", follow);
    if ("ResizeObserver" in window) new ResizeObserver(draw).observe(ticks);
    draw();
    follow();
  };
  for (const box of document.querySelectorAll(".timeline")) start(box);
})();
