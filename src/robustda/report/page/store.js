// Decisions: made, undone, kept in the browser under the audit's digest, exported.
const store = {
  made: new Map(), // suspect → [decision, class]; the class counts for relabel only
  past: [],
  key: `robustda-audit:${data.digest}`,
  listeners: [],

  load() {
    try {
      const kept = JSON.parse(localStorage.getItem(this.key) || '[]');
      for (const [suspect, decision, label] of kept) {
        if (suspect in data.suspects.id && ['keep', 'relabel', 'drop'].includes(decision)) this.made.set(suspect, [decision, label]);
      }
    } catch {
      byId('kept').hidden = false;
    }
  },

  keep() {
    try {
      localStorage.setItem(this.key, JSON.stringify([...this.made].map(([suspect, [decision, label]]) => [suspect, decision, label])));
    } catch {
      byId('kept').hidden = false;
    }
  },

  // One step, however many suspects it is about; the same decision again takes it back.
  decide(suspects, decision, labelOf) {
    const step = [];
    for (const suspect of suspects) {
      const before = this.made.get(suspect);
      const label = labelOf(suspect);
      const same = before && before[0] === decision && before[1] === label;
      if (same && suspects.length > 1) continue;
      step.push([suspect, before]);
      if (same) this.made.delete(suspect);
      else this.made.set(suspect, [decision, label]);
    }
    if (step.length) this.past.push(step);
    this.changed();
    return step.length;
  },

  undo() {
    const step = this.past.pop();
    if (!step) return null;
    for (const [suspect, before] of step) {
      if (before) this.made.set(suspect, before);
      else this.made.delete(suspect);
    }
    this.changed();
    return step;
  },

  changed() {
    this.keep();
    for (const listener of this.listeners) listener();
  },

  finalLabel(suspect) {
    const [decision, label] = this.made.get(suspect);
    if (decision === 'drop') return '';
    return data.names[decision === 'relabel' ? label : data.suspects.given[suspect]];
  },

  csv() {
    const field = (text) => (/[",\r\n]|^\s|\s$/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
    const lines = [...this.made.keys()].sort((a, b) => a - b).map((suspect) =>
      [data.suspects.id[suspect], this.made.get(suspect)[0], this.finalLabel(suspect)].map(field).join(','));
    return ['id,decision,label', ...lines].join('\n') + '\n';
  },

  save() {
    const link = el('a', { href: URL.createObjectURL(new Blob([this.csv()], { type: 'text/csv' })), download: 'decisions.csv' });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
    announce(`${count(this.made.size)} decisions exported.`);
  },
};
