// The page is complete without this script. It adds: the event under the pointer, one that stays when clicked, a line
// through all runs at its time, its line of code and its request; keys; even spacing; lanes that can be hidden; the
// position in the address; a button that copies the command.
"use strict";
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const rows = all(".events tr[id]");
  const timeOf = (row) => +row.cells[0].textContent;
  const english = () => document.getElementById("en").checked;
  const say = (en, zh) => (english() ? en : zh);
  const spoken = (cell) => (cell.querySelector(`[lang=${english() ? "en" : "zh"}]`) || cell).textContent;
  const scales = new Map(); // of each picture: time to x
  let pinned = null, even = false;

  // ---- the row of controls, made here because it is of no use without a script

  const deck = document.createElement("div");
  deck.className = "deck";
  const button = (name, text = "") => {
    const made = Object.assign(document.createElement("button"), { type: "button", textContent: text });
    made.dataset.do = name;
    return made;
  };
  const output = document.createElement("output");
  const buttons = { previous: button("previous", "←"), next: button("next", "→"), violation: button("violation"), even: button("even"), lanes: button("lanes") };
  deck.append(...Object.values(buttons), output);
  if (rows.length) document.body.append(deck);

  function relabel() {
    document.documentElement.lang = english() ? "en" : "zh-CN";
    buttons.previous.title = buttons.previous.ariaLabel = say("previous event", "上一个事件");
    buttons.next.title = buttons.next.ariaLabel = say("next event", "下一个事件");
    buttons.violation.textContent = say("first violation", "首次违例");
    buttons.even.textContent = say("even spacing", "等距显示");
    buttons.lanes.textContent = say("show all lanes", "显示全部泳道");
    all(".copy").forEach((copy) => (copy.textContent = say("copy", "复制")));
    show(pinned);
  }

  // ---- where a moment lies: true to time, or one step for each event

  function scale(svg) {
    const left = +svg.dataset.left, right = +svg.dataset.right, end = +svg.dataset.end;
    if (!even || svg.classList.contains("crowd")) return (time) => left + (time / end) * (right - left);
    const marks = all(".events tr[id]", svg.closest("article")).map(timeOf);
    const times = [...new Set([0, ...marks, end])].sort((a, b) => a - b).filter((t, i, list) => !i || t - list[i - 1] > 0.002);
    return (time) => {
      const found = times.findIndex((t) => t >= time - 1e-6);
      const after = Math.max(1, found < 0 ? times.length - 1 : found);
      const part = Math.min(1, Math.max(0, (time - times[after - 1]) / (times[after] - times[after - 1])));
      return left + ((after - 1 + part) / (times.length - 1)) * (right - left);
    };
  }

  function place() {
    for (const svg of all(".picture svg[data-end]")) {
      const x = scale(svg);
      const was = scales.get(svg);
      scales.set(svg, x);
      if (!was && !even) continue; // it was drawn so
      for (const node of all("[data-a]", svg)) {
        const from = x(+node.dataset.a);
        if (node.dataset.b === undefined) node.setAttribute("transform", `translate(${from.toFixed(1)},0)`);
        else {
          node.setAttribute("x", from.toFixed(1));
          node.setAttribute("width", Math.max(1, x(+node.dataset.b) - from).toFixed(1));
        }
      }
      let free = -99; // numbers of the axis that would overlap are hidden, and so are labels that leave their bars
      for (const tick of all(".tick", svg)) {
        const at = x(+tick.parentNode.dataset.a);
        tick.style.display = at - free < 28 ? "none" : "";
        if (at - free >= 28) free = at;
      }
    }
    document.body.classList.toggle("even", even);
    buttons.even.setAttribute("aria-pressed", even);
    show(pinned);
  }

  // ---- one event: its marks, its row, its line of code, its request, and its time in every run

  const marksOf = (row) => all(`.picture a.ev[href="#${row.id}"]`, row.closest("article"));
  const rowOf = (link) => document.getElementById(link.getAttribute("href").slice(1));

  function show(row) {
    all(".on").forEach((node) => node.classList.remove("on"));
    output.replaceChildren();
    if (!row) {
      output.append(say("Hover or click an event. ", "悬停或点击事件。"));
      for (const key of ["←", "→", "v", "e", "Esc"]) output.append(Object.assign(document.createElement("kbd"), { textContent: key }), " ");
      return;
    }
    row.classList.add("on");
    const [time, told, token, line] = [...row.cells].map(spoken);
    const run = spoken(row.parentNode.querySelector("th"));
    output.append(Object.assign(document.createElement("b"), { textContent: `${time} s` }), ` · ${run} · ${told}`);
    if (token) output.append(` · ${say("token", "令牌")} ${token}`);
    if (line) markLine(row, line);
    const article = row.closest("article");
    for (const svg of all(".picture svg[data-end]", article)) {
      const at = scales.get(svg)(timeOf(row));
      svg.classList.add("on");
      const cross = svg.querySelector(".cross");
      cross.setAttribute("x1", at);
      cross.setAttribute("x2", at);
    }
    for (const mark of marksOf(row)) {
      mark.classList.add("on");
      request(mark);
    }
  }

  function markLine(row, line) {
    const name = row.parentNode.dataset.run.slice(row.closest("article").id.length + 1);
    const code = all(".code figure", row.closest("article")).find((one) => one.dataset.runs.split(" ").includes(name));
    const found = code && code.querySelector(`[data-line="${line}"]`);
    if (found) found.classList.add("on");
  }

  // The arrow from the mark to the lane that was asked, or that answered.
  function request(mark) {
    const svg = mark.closest("svg"), arrow = svg.querySelector(".arrow"), lane = mark.closest(".lane");
    const other = all(".lane", svg).find((one) => one.dataset.lane === mark.dataset.to);
    if (!arrow || !other || !lane) return;
    const top = (one) => one.transform.baseVal[0].matrix.f;
    const from = top(lane) + +mark.querySelector("use:last-child").getAttribute("y");
    const to = top(other) + (top(other) < top(lane) ? +other.dataset.height - 8 : 12);
    const x = mark.transform.baseVal[0].matrix.e, tip = to < from ? 6 : -6;
    arrow.setAttribute("d", `M${x} ${from}V${to}m-4 ${tip}l4 ${-tip}l4 ${tip}`);
    arrow.classList.add("on");
  }

  function pin(row, scroll) {
    pinned = row;
    show(row);
    history.replaceState(null, "", row ? `#${row.id}` : location.pathname + location.search);
    if (!row) return;
    const box = row.closest(".events");
    box.scrollTop = row.offsetTop - box.clientHeight / 2;
    if (scroll) (marksOf(row).find((mark) => mark.getClientRects().length)?.closest(".panel") || box).scrollIntoView({ block: "nearest" });
  }

  // ---- next, previous, first violation

  function nearest() { // the first event of the scenario that is being read
    const article = all("article").find((one) => one.getBoundingClientRect().bottom > 120);
    return article ? rows.find((row) => article.contains(row)) : rows[0];
  }

  function step(by) {
    if (!rows.length) return;
    pin(pinned ? rows[(rows.indexOf(pinned) + by + rows.length) % rows.length] : nearest(), true);
  }

  function firstViolation() {
    const start = pinned || nearest();
    const scope = start && start.closest("article");
    const band = (scope && scope.querySelector("svg.wide .band:is(.red, .vain)")) || document.querySelector(".picture svg.wide .band:is(.red, .vain)");
    if (!band) return;
    const panel = band.closest(".panel"), harm = panel.querySelector('svg.wide a.ev:has([href="#m-harm"])');
    if (harm) return pin(rowOf(harm), true);
    const own = rows.filter((row) => row.parentNode.dataset.run === panel.id);
    pin(own.find((row) => timeOf(row) >= +band.dataset.a - 1e-4) || own[0], true);
  }

  // ---- lanes: the name of one hides it, and the others move up

  function arrange(svg) {
    let y = 48;
    const lanes = all(".lane", svg);
    for (const lane of lanes) {
      lane.setAttribute("transform", `translate(0,${y})`);
      y += lane.classList.contains("off") ? 22 : +lane.dataset.height;
    }
    const [, start, width, height] = (svg.dataset.view ||= svg.getAttribute("viewBox")).split(" ").map(Number);
    const whole = 48 + lanes.reduce((sum, lane) => sum + +lane.dataset.height, 0);
    svg.setAttribute("viewBox", `0 ${start} ${width} ${height - whole + y}`);
    all(".band", svg).forEach((band) => band.setAttribute("height", y - 40));
    all(".grid, .cross", svg).forEach((line) => line.setAttribute("y2", y));
    all(".axis > .rule", svg).forEach((line) => ["y1", "y2"].forEach((end) => line.setAttribute(end, y)));
    all(".tick", svg).forEach((tick) => tick.setAttribute("y", y + 15));
    all(".leader", svg).forEach((leader) => leader.setAttribute("d", leader.getAttribute("d").replace(/V[\d.]+$/, `V${y}`)));
  }

  function toggle(name) {
    const lane = name.closest(".lane"), off = !lane.classList.contains("off");
    for (const twin of all(".picture .lane", lane.closest("article")).filter((one) => one.dataset.lane === lane.dataset.lane)) {
      twin.classList.toggle("off", off);
      twin.querySelector(".name").setAttribute("y", off ? 15 : twin.dataset.baseline);
      twin.querySelector(".name").setAttribute("aria-pressed", !off);
      arrange(twin.closest("svg"));
    }
    hasHidden();
    show(pinned);
  }

  function hasHidden() {
    buttons.lanes.hidden = !document.querySelector(".lane.off");
  }

  for (const name of all(".picture .lane > .name")) {
    name.parentNode.dataset.baseline = name.getAttribute("y");
    name.setAttribute("role", "button");
    name.setAttribute("tabindex", "0");
    name.setAttribute("aria-pressed", "true");
    name.addEventListener("click", () => toggle(name));
    name.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      toggle(name);
    });
  }

  // ---- what people do

  const actions = {
    previous: () => step(-1),
    next: () => step(1),
    violation: firstViolation,
    even: () => ((even = !even), place()),
    lanes: () => all("svg.wide .lane.off > .name").forEach(toggle),
  };
  const keys = { ArrowLeft: "previous", ArrowRight: "next", v: "violation", e: "even" };

  deck.addEventListener("click", (event) => actions[event.target.dataset.do]?.());
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input")) return;
    if (event.key === "Escape") pin(null);
    else if (keys[event.key] && rows.length) {
      event.preventDefault();
      actions[keys[event.key]]();
    }
  });
  for (const link of all(".picture a.ev")) link.setAttribute("tabindex", "-1"); // the arrow keys reach them
  for (const link of all(".picture a.ev, .captions a")) {
    if (!rowOf(link)) continue;
    link.addEventListener("click", (event) => {
      event.preventDefault();
      pin(rowOf(link), false);
    });
    link.addEventListener("pointerenter", (event) => event.pointerType === "mouse" && show(rowOf(link)));
    link.addEventListener("pointerleave", () => show(pinned));
  }
  for (const row of rows) row.addEventListener("click", () => pin(row, false));
  for (const figure of all(".code figure")) {
    const article = figure.closest("article"), runs = figure.dataset.runs.split(" ");
    const own = all(".events tr[id]", article).filter((row) => runs.includes(row.parentNode.dataset.run.slice(article.id.length + 1)));
    for (const line of all(".l", figure)) {
      const row = own.find((one) => one.cells[3].textContent === line.dataset.line);
      if (!row) continue;
      line.setAttribute("role", "button");
      line.addEventListener("click", () => pin(row, false));
    }
  }
  for (const command of all("article .command")) {
    const copy = Object.assign(document.createElement("button"), { className: "copy", type: "button" });
    copy.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(command.textContent);
        copy.textContent = say("copied", "已复制");
      } catch {
        getSelection().selectAllChildren(command); // a page from a file may not write to the clipboard everywhere
      }
      setTimeout(relabel, 1500);
    });
    command.after(copy);
  }
  all("nav input").forEach((input) => input.addEventListener("change", relabel));
  hasHidden();
  place();
  relabel();
  const open = () => {
    const wanted = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (wanted && rows.includes(wanted)) pin(wanted, true);
  };
  addEventListener("hashchange", open);
  addEventListener("load", () => setTimeout(open));
})();
