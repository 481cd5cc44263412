// What all views share: which recording, which part of it, what is chosen. A view listens, and draws once a frame at most.

export class State {
  constructor(values) {
    this.values = values;
    this.listeners = [];
    this.changed = new Set();
  }

  get(name) {
    return this.values[name];
  }

  set(patch) {
    for (const [name, value] of Object.entries(patch)) {
      if (this.values[name] === value) continue;
      this.values[name] = value;
      this.changed.add(name);
    }
    if (this.changed.size && !this.isWaiting) {
      this.isWaiting = true;
      requestAnimationFrame(() => this.tell());
    }
  }

  // Calls `listener(changed)` once a frame in which one of `names` changed.
  on(names, listener) {
    this.listeners.push({ names, listener });
  }

  tell() {
    this.isWaiting = false;
    const changed = this.changed;
    this.changed = new Set();
    for (const { names, listener } of this.listeners) {
      if (names.some((name) => changed.has(name))) listener(changed);
    }
  }
}
