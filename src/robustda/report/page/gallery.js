// The suspects: searched, sorted, and only those near the window drawn.
const suspects = data.suspects;
const total = suspects.id.length;
const AHEAD = 4; // rows drawn beyond the window

const SHOW = {
  all: ['All suspects', () => true],
  wrong: ['Labels that look wrong', (i) => suspects.issue[i]],
  unlike: ['Like no class', (i) => suspects.unlike[i]],
  corrupted: ['Corrupted features', (i) => suspects.kind[i]],
  copies: ['Copies that clash', (i) => suspects.copy[i]],
  open: ['Not decided yet', (i) => !store.made.has(i)],
  decided: ['Decided', (i) => store.made.has(i)],
};
// Comparing texts is slow, so it is done once for each list of them, and numbers are compared after that.
const collator = new Intl.Collator(undefined, { numeric: true });
function ranks(texts) {
  const rank = [];
  texts.map((_, i) => i).sort((a, b) => collator.compare(texts[a], texts[b])).forEach((i, place) => { rank[i] = place; });
  return rank;
}
const later = (make) => { let made; return () => (made ??= make()); };
const nameRank = later(() => ranks(data.names));
const idRank = later(() => ranks(suspects.id));
const byRank = (rank, of) => (a, b) => rank()[of(a)] - rank()[of(b)] || a - b;
const SORT = {
  wrong: ['Most likely wrong', (a, b) => suspects.wrong[b] - suspects.wrong[a] || a - b],
  confidence: ['Surest suggestion', (a, b) => suspects.confidence[b] - suspects.confidence[a] || a - b],
  doubt: ['Most doubtful', (a, b) => Math.abs(suspects.wrong[a] - 0.5) - Math.abs(suspects.wrong[b] - 0.5) || a - b],
  given: ['Given label', byRank(nameRank, (i) => suspects.given[i])],
  suggested: ['Suggested label', byRank(nameRank, (i) => suspects.suggested[i])],
  id: ['Name', byRank(idRank, (i) => i)],
  corruption: ['Corruption', (a, b) => suspects.corruption[b] - suspects.corruption[a] || a - b],
};
const BULK = { '': 'decide …', keep: 'keep', relabel: 'relabel to suggestion', drop: 'drop' };
const WHY = { noise: 'noisy image', blur: 'blurred image', far: 'far from all others', odd: 'odd features' };

const gallery = {
  order: [], active: -1, rows: new Map(), rowHeight: 1, given: null,

  start() {
    for (const [id, choices] of [['show', SHOW], ['sort', SORT], ['bulk', BULK]]) {
      byId(id).append(...Object.entries(choices).map(([value, label]) => el('option', { value }, Array.isArray(label) ? label[0] : label)));
    }
    this.haystack = suspects.id.map((id, i) => `${id}\n${data.names[suspects.given[i]]}\n${data.names[suspects.suggested[i]]}`.toLowerCase());
    this.list = byId('list');
    let typing = 0;
    byId('search').addEventListener('input', () => {
      this.given = null;
      this.refresh();
      clearTimeout(typing); // what was found is said once the typing is over
      typing = setTimeout(() => announce(byId('shown').textContent), 600);
    });
    byId('show').addEventListener('change', () => { this.refresh(); announce(byId('shown').textContent); });
    byId('sort').addEventListener('change', () => { this.refresh(); announce(`Sorted by: ${SORT[byId('sort').value][0]}.`); });
    // Not as soon as something is chosen: arrow keys choose what they pass.
    byId('apply').addEventListener('click', () => {
      this.decideAll(byId('bulk').value);
      byId('bulk').value = '';
    });
    byId('undo').addEventListener('click', () => this.undo());
    byId('export').addEventListener('click', () => store.save());
    this.list.addEventListener('focusin', (event) => this.activate(Number(event.target.closest('.row').dataset.place)));
    this.list.addEventListener('click', (event) => this.click(event));
    let waiting = false;
    const soon = () => {
      if (waiting) return;
      waiting = true;
      requestAnimationFrame(() => { waiting = false; this.draw(); });
    };
    addEventListener('scroll', soon, { passive: true });
    addEventListener('resize', () => { this.measure(); soon(); });
    store.listeners.push(() => this.update());
    const left = data.left_out ? ` The ${count(data.left_out)} least suspect ones are in issues.csv only.` : '';
    byId('suspects-note').textContent = total ? `Look at an example, then keep its label, give it another, or drop it. Nothing leaves this browser until you export it.${left}` : 'Nothing here looks wrong. There is nothing to decide.';
    for (const node of document.querySelectorAll('.filters, .keys, .bar')) node.hidden = !total;
    this.measure();
    this.refresh();
    this.update();
  },

  measure() {
    this.rowHeight = parseFloat(getComputedStyle(this.list).getPropertyValue('--row'));
    this.list.style.height = `${this.order.length * this.rowHeight}px`;
    for (const [place, row] of this.rows) row.style.top = `${place * this.rowHeight}px`;
  },

  // Find and sort anew; the row that is being looked at stays so, if it is still there.
  refresh() {
    const words = byId('search').value.toLowerCase().split(/\s+/).filter(Boolean);
    const wanted = SHOW[byId('show').value][1];
    const current = this.order[this.active];
    this.order = [];
    for (let i = 0; i < total; i += 1) {
      if (wanted(i) && (this.given === null || suspects.given[i] === this.given) && words.every((word) => this.haystack[i].includes(word))) this.order.push(i);
    }
    this.order.sort(SORT[byId('sort').value][1]);
    const place = current === undefined ? -1 : this.order.indexOf(current);
    this.active = place >= 0 ? place : Math.min(this.active, this.order.length - 1);
    const focused = this.list.contains(document.activeElement);
    for (const row of this.rows.values()) row.remove();
    this.rows.clear();
    byId('nothing').hidden = this.order.length > 0 || !total;
    byId('shown').textContent = this.order.length === total ? `${count(total)} suspects` : `${count(this.order.length)} of ${count(total)} shown`;
    this.measure();
    this.draw();
    if (focused) this.goTo(this.active); // what had the focus is gone
  },

  showClass(k) {
    byId('search').value = '';
    byId('show').value = 'all';
    this.given = k;
    this.refresh();
    byId('shown').replaceChildren(`${count(this.order.length)} labelled `, name(data.names[k]), ' ', clearButton());
    byId('suspects').scrollIntoView();
    byId('suspects').focus({ preventScroll: true });
    announce(`${count(this.order.length)} suspects labelled ${data.names[k]}.`);
  },

  draw() {
    const top = this.list.getBoundingClientRect().top;
    const first = Math.max(0, Math.floor(-top / this.rowHeight) - AHEAD);
    const last = Math.min(this.order.length, Math.ceil((innerHeight - top) / this.rowHeight) + AHEAD);
    for (const [place, row] of this.rows) {
      if ((place < first || place >= last) && !row.contains(document.activeElement)) {
        row.remove();
        this.rows.delete(place);
      }
    }
    for (let place = first; place < last; place += 1) {
      if (this.rows.has(place)) continue;
      const row = makeRow(this.order[place], place, this.order.length);
      row.style.top = `${place * this.rowHeight}px`;
      row.tabIndex = place === Math.max(0, this.active) ? 0 : -1;
      row.classList.toggle('active', place === this.active);
      // A screen reader follows the document's order, not the rows' places.
      const after = [...this.list.children].find((other) => Number(other.dataset.place) > place);
      this.list.insertBefore(row, after || null);
      this.rows.set(place, row);
    }
  },

  activate(place) {
    this.active = place;
    for (const [other, row] of this.rows) {
      row.tabIndex = other === place ? 0 : -1;
      row.classList.toggle('active', other === place);
    }
  },

  goTo(place) {
    if (!this.order.length) {
      byId('suspects').focus({ preventScroll: true });
      return;
    }
    this.activate(Math.max(0, Math.min(this.order.length - 1, place)));
    const top = this.list.getBoundingClientRect().top + this.active * this.rowHeight;
    const under = byId('bar').offsetHeight;
    if (top < under) scrollBy(0, top - under);
    else if (top + this.rowHeight > innerHeight) scrollBy(0, top + this.rowHeight - innerHeight + 8);
    this.draw();
    const row = this.rows.get(this.active);
    if (row) row.focus({ preventScroll: true });
  },

  click(event) {
    const button = event.target.closest('button');
    if (!button) return;
    const suspect = Number(button.closest('.row').dataset.suspect);
    this.decide(suspect, button.dataset.decision);
  },

  decide(suspect, decision) {
    if (decision === 'choose' || (decision === 'relabel' && suspects.suggested[suspect] === suspects.given[suspect])) {
      chooser.open(suspect);
      return false;
    }
    this.settle(suspect, decision, suspects.suggested[suspect]);
    return true;
  },

  settle(suspect, decision, label) {
    store.decide([suspect], decision, () => (decision === 'relabel' ? label : -1));
    const taken = store.made.has(suspect) ? describe(suspect) : 'not decided';
    announce(`${suspects.id[suspect]}: ${taken}. ${count(store.made.size)} of ${count(total)} decided.`);
  },

  decideAll(decision) {
    if (!decision) return;
    const about = this.order.filter((i) => decision !== 'relabel' || suspects.suggested[i] !== suspects.given[i]);
    const changed = store.decide(about, decision, (i) => (decision === 'relabel' ? suspects.suggested[i] : -1));
    announce(`${count(changed)} decisions made. Undo takes all of them back.`);
  },

  undo() {
    const step = store.undo();
    if (!step) return;
    const place = this.order.indexOf(step[0][0]);
    this.goTo(place >= 0 ? place : this.active); // the button may be disabled now, and would lose the focus
    announce(step.length === 1 ? `Undone: ${suspects.id[step[0][0]]}.` : `${count(step.length)} decisions undone.`);
  },

  // After decisions have changed.
  update() {
    byId('progress').textContent = `${count(store.made.size)} of ${count(total)} decided`;
    byId('meter').value = total ? store.made.size / total : 0;
    byId('undo').disabled = !store.past.length;
    byId('export').disabled = !store.made.size;
    if (['open', 'decided'].includes(byId('show').value)) this.refresh();
    else for (const row of this.rows.values()) showDecision(row, Number(row.dataset.suspect));
  },
};

function clearButton() {
  const button = el('button', { type: 'button', class: 'quiet' }, 'Show all');
  button.addEventListener('click', () => {
    gallery.given = null;
    gallery.refresh();
    byId('suspects').focus({ preventScroll: true });
    announce(byId('shown').textContent);
  });
  return button;
}
