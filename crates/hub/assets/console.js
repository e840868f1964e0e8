// What makes the console live: the link's code, events, keys, copying. Pages can be read without it.
(function () {
  "use strict";
  const at = (id) => document.getElementById(id);

  // The one-time code of a link. It is taken out of the address before anything else happens.
  function takeCode() {
    const code = location.hash.slice(1);
    if (!/^evko_[0-9a-f]+$/.test(code)) return "";
    history.replaceState(null, "", location.pathname);
    return code;
  }

  async function post(path, body) {
    const answer = await fetch(path, {
      method: "POST",
      credentials: "same-origin",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(body),
    });
    if (answer.ok) return "";
    const problem = await answer.json().catch(() => ({}));
    return [problem.detail || "the hub refused it", problem.hint].filter(Boolean).join("; ");
  }

  function enter() {
    const place = at("enter");
    if (!place) return;
    const code = takeCode();
    if (!code) {
      if (place.dataset.loggedIn === "yes") location.replace("/console/fleet");
      return;
    }
    at("enter-state").textContent = "Coming in…";
    post("/v1/sessions", { code }).then(
      (refusal) => {
        if (!refusal) return location.replace("/console/fleet");
        at("enter-state").textContent = /another browser/.test(refusal)
          ? "This link was made for another browser and opened nothing. If you did not ask for one, it was sent to log you in as somebody else. A link for this browser:"
          : "This link does not work any more: it works once, for a minute. Have a new one printed:";
      },
      () => (at("enter-state").textContent = "The hub cannot be reached. Open the link again."),
    );
  }

  function firstAdmin() {
    const form = at("first-admin");
    if (!form) return;
    const code = takeCode();
    const state = at("first-admin-state");
    if (!code) state.textContent = "This address has no code. Open the link that the server printed.";
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const key = form.elements.key.value.trim();
      if (/PRIVATE KEY/.test(key)) {
        form.elements.key.value = "";
        state.textContent = "That was a private key. It was not sent; give the line of the .pub file.";
        return;
      }
      post("/v1/first-admin", { code, name: form.elements.name.value.trim(), key }).then(
        (refusal) => {
          state.textContent = refusal;
          if (refusal) return;
          form.hidden = true;
          at("first-admin-next").hidden = false;
        },
        () => (state.textContent = "The hub cannot be reached."),
      );
    });
  }

  // Live: each event names what to look at again; the server renders it.
  const GATHER_MS = 150;
  const ONE_BY_ONE_MAX = 10;
  let gathered = new Set();
  let waiting = 0;

  function lookAgain() {
    waiting = 0;
    const events = gathered;
    gathered = new Set();
    if (!window.htmx) return;
    const all = events.has("resync");
    const isMeant = (place) => {
      const name = place.dataset.name;
      return place.dataset.live.split(" ").some((kind) =>
        [...events].some((event) => {
          const space = event.indexOf(" ");
          return event.slice(0, space) === kind && (name === "*" || name === event.slice(space + 1));
        }),
      );
    };
    const region = document.querySelector("[data-live-region]");
    const rows = [...document.querySelectorAll("tr[data-live]")].filter(isMeant);
    const isRegionMeant = region && region.dataset.live && isMeant(region);
    if (all || isRegionMeant || rows.length > ONE_BY_ONE_MAX) {
      if (region && !region.querySelector("textarea:focus, input:focus")) window.htmx.trigger(region, "live");
    } else {
      rows.forEach((row) => window.htmx.trigger(row, "live"));
    }
  }

  function gather(event) {
    gathered.add(event);
    if (!waiting) waiting = setTimeout(lookAgain, GATHER_MS);
  }

  // The stream follows the page: it begins where the page was read, and after a break where it broke off. Where the hub does not
  // know that any more it says `resync`, and everything is loaded anew.
  const AGAIN_MS = 1000;
  const AGAIN_MS_MAX = 30000;
  function live() {
    if (!document.body.hasAttribute("data-live-page") || !window.EventSource) return;
    const mark = at("live");
    mark.hidden = false;
    const say = (isLive, words) => {
      mark.className = isLive ? "live on" : "live off";
      mark.textContent = words;
      mark.title = isLive ? "What changes is shown as it happens." : "What is shown may be old.";
    };
    say(false, "not live yet");
    let last = document.body.dataset.liveFrom;
    let pause = AGAIN_MS;
    let source = null;
    let timer = 0;
    const hear = (kind) => (message) => {
      last = message.lastEventId || last;
      gather(kind === "resync" ? kind : kind + " " + JSON.parse(message.data).name);
    };
    const connect = () => {
      source = new EventSource("/v1/events" + (last ? "?after=" + encodeURIComponent(last) : ""));
      source.addEventListener("open", () => {
        pause = AGAIN_MS;
        say(true, "live");
      });
      source.addEventListener("error", () => {
        say(false, "not live: reconnecting");
        // Browsers come back by themselves unless they were answered, as by a proxy whose hub is away.
        if (source.readyState !== EventSource.CLOSED) return;
        timer = setTimeout(connect, pause);
        pause = Math.min(2 * pause, AGAIN_MS_MAX);
      });
      for (const kind of ["resync", "host", "pending", "document", "audit"]) source.addEventListener(kind, hear(kind));
    };
    connect();
    addEventListener("pagehide", () => {
      clearTimeout(timer);
      source.close();
    });
    addEventListener("pageshow", (event) => event.persisted && location.reload());
  }

  // Moments in the past grow older while one looks at them.
  function ago(seconds) {
    if (seconds < 0) return "just now";
    if (seconds < 60) return seconds + " s ago";
    if (seconds < 3600) return Math.floor(seconds / 60) + " min ago";
    if (seconds < 172800) return Math.floor(seconds / 3600) + " h ago";
    return Math.floor(seconds / 86400) + " d ago";
  }
  let skew = 0;
  function grow() {
    for (const time of document.querySelectorAll("time[title]")) {
      const then = Date.parse(time.dateTime);
      if (then && / ago$|^just now$/.test(time.textContent)) time.textContent = ago(Math.floor((Date.now() + skew - then) / 1000));
    }
  }

  // Keys.
  const rows = () => [...document.querySelectorAll("[data-row]")];
  function step(by) {
    const all = rows();
    if (!all.length) return;
    const now = all.findIndex((row) => row.contains(document.activeElement));
    const next = all[Math.max(0, Math.min(all.length - 1, now < 0 ? 0 : now + by))];
    const link = next.querySelector("th a, a") || next;
    if (link === next) next.tabIndex = -1;
    link.focus();
    next.scrollIntoView({ block: "nearest" });
  }
  const PLACES = { f: "/console/fleet", a: "/console/approvals", u: "/console/audit" };
  let isGoing = false;
  function keys(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest("input, textarea, select, dialog")) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    const place = isGoing && PLACES[event.key];
    isGoing = event.key === "g";
    if (place) location.assign(place);
    else if (event.key === "j") step(1);
    else if (event.key === "k") step(-1);
    else if (event.key === "/") {
      const search = document.querySelector("[data-search]");
      if (!search) return location.assign("/console/fleet");
      search.focus();
      search.select();
    } else if (event.key === "?") at("keys") && at("keys").showModal();
    else return;
    event.preventDefault();
  }

  // Commands can be copied, files be read into their field.
  function dress(root) {
    for (const place of root.querySelectorAll("[data-copy]:not([data-dressed])")) {
      place.dataset.dressed = "yes";
      place.tabIndex = 0;
      if (!navigator.clipboard) continue;
      const text = place.textContent;
      const button = document.createElement("button");
      button.type = "button";
      button.className = "copy";
      button.textContent = "Copy";
      button.addEventListener("click", () =>
        navigator.clipboard.writeText(text).then(
          () => (button.textContent = "Copied"),
          () => (button.textContent = "Cannot copy"),
        ),
      );
      const around = document.createElement("div");
      around.className = "with-copy";
      place.replaceWith(around);
      around.append(place, button);
    }
    for (const field of root.querySelectorAll("[data-public-key]:not([data-dressed])")) {
      field.dataset.dressed = "yes";
      field.form.addEventListener("submit", (event) => {
        const isPrivate = /PRIVATE KEY/.test(field.value);
        if (isPrivate) {
          event.preventDefault();
          field.value = "";
        }
        field.setCustomValidity(isPrivate ? "That was a private key. It was not sent; give the line of the .pub file." : "");
        if (isPrivate) field.reportValidity();
      });
      field.addEventListener("input", () => field.setCustomValidity(""));
    }
    for (const input of root.querySelectorAll("[data-into]:not([data-dressed])")) {
      input.dataset.dressed = "yes";
      input.addEventListener("change", async () => {
        const file = input.files[0];
        if (file && file.size < 200000) at(input.dataset.into).value = await file.text();
      });
    }
  }

  function begin() {
    enter();
    // A link that is opened where the page is open already changes nothing but what stands behind the #.
    addEventListener("hashchange", enter);
    firstAdmin();
    dress(document);
    document.addEventListener("keydown", keys);
    document.addEventListener("htmx:afterSwap", (event) => dress(event.target.parentElement || document));
    document.addEventListener("htmx:load", (event) => dress(event.target));
    // What cannot be taken is shown too: a document with mistakes is answered with what is wrong.
    document.addEventListener("htmx:responseError", (event) => {
      if (event.detail.xhr.status === 401) location.assign("/console");
    });
    const button = at("keys-button");
    if (button) {
      button.hidden = false;
      button.addEventListener("click", () => at("keys").showModal());
    }
    live();
    setInterval(grow, 10000);
  }
  begin();
})();
