/* Zoom, search and keys for the flame graph above. The picture is whole without this.

   State is in the address, so that it can be mailed and "back" undoes it:  #z=ID  zooms to a frame,  #s=text  marks
   frames whose name has the text in it (upper and lower case alike) and sums their share;  #z=f12&s=udp  does both.

   Each frame <g class="f"> has data-x and data-w (place and width of the whole graph, in integers), data-l (level) and
   data-n (its whole name). Zooming writes x, width and label anew; nothing is added or taken away. */
(function () {
  'use strict';
  var svg = document.getElementById('flame'), tools = document.getElementById('flame-tools');
  if (!svg || !tools) return;
  var side = +svg.dataset.side, width = +svg.dataset.width, character = +svg.dataset.char;
  var input = document.getElementById('flame-search'), says = document.getElementById('flame-says');
  var reset = document.getElementById('flame-reset');
  var frames = Array.prototype.map.call(svg.querySelectorAll('g.f'), function (g) {
    return { g: g, rect: g.querySelector('rect'), text: g.querySelector('text'), x: +g.dataset.x, w: +g.dataset.w,
      level: +g.dataset.l, name: g.dataset.n, lower: g.dataset.n.toLowerCase(), about: g.querySelector('title').textContent };
  });
  if (!frames.length) return;
  var byId = {}, here = frames[0];
  frames.forEach(function (f) { byId[f.g.id] = f; });
  tools.hidden = false;
  svg.setAttribute('role', 'group');

  function label(f, room) {
    var most = Math.floor((room - 6) / character);
    return most < 3 ? '' : f.name.length <= most ? f.name : f.name.slice(0, most - 1) + '\u2026';
  }

  /* Callers of the one zoomed to span the width; what is beside it is hidden; its callees grow with it. */
  function zoom(to) {
    var scale = width / to.w, end = to.x + to.w;
    frames.forEach(function (f) {
      var caller = f.level < to.level && f.x <= to.x && f.x + f.w >= end;
      var inside = f.level >= to.level && f.x >= to.x && f.x + f.w <= end + 2;
      if (!caller && !inside) { f.g.setAttribute('class', f.g.getAttribute('class').replace(/ (caller|out)\b/g, '') + ' out'); return; }
      var x = caller ? 0 : (f.x - to.x) * scale, w = caller ? width : f.w * scale;
      f.g.setAttribute('class', f.g.getAttribute('class').replace(/ (caller|out)\b/g, '') + (caller ? ' caller' : ''));
      f.rect.setAttribute('x', side + x);
      f.rect.setAttribute('width', Math.max(w - 0.4, 0.2));
      f.text.setAttribute('x', side + x + 3);
      f.text.textContent = label(f, w);
    });
  }

  /* A frame within a marked frame is not counted twice: callers stand before their callees in the page. What was rounded
     may be off by one to either side, and no frame is that narrow. */
  function search(wanted) {
    var found = 0, share = 0, ends = 0;
    frames.forEach(function (f) {
      var hit = wanted !== '' && f.lower.indexOf(wanted) >= 0;
      f.g.setAttribute('class', f.g.getAttribute('class').replace(/ hit\b/g, '') + (hit ? ' hit' : ''));
      if (!hit) return;
      found += 1;
      if (f.x >= ends - 2) { share += f.w; ends = f.x + f.w; }
    });
    says.textContent = wanted === '' ? '' : found + (found === 1 ? ' frame, ' : ' frames, ') +
      (share / frames[0].w * 100).toFixed(1) + ' % of the whole';
  }

  function wanted() {
    var state = { z: '', s: '' };
    location.hash.slice(1).split('&').forEach(function (part) {
      var at = part.indexOf('=');
      if (at < 0) return;
      try { state[part.slice(0, at)] = decodeURIComponent(part.slice(at + 1)); } catch (e) { /* not ours */ }
    });
    return state;
  }

  function show() {
    var state = wanted(), to = byId[state.z] || frames[0];
    zoom(to);
    search(state.s.toLowerCase());
    if (input.value !== state.s) input.value = state.s;
    reset.disabled = to === frames[0] && state.s === '';
    reach(to, false);
  }

  function go(change) {
    var state = wanted(), parts = [];
    for (var key in change) state[key] = change[key];
    if (state.z && state.z !== 'f0') parts.push('z=' + state.z);
    if (state.s) parts.push('s=' + encodeURIComponent(state.s));
    location.hash = parts.join('&');
    show();
  }

  /* One frame at a time can be reached by Tab; arrows go from frame to frame. */
  function reach(f, focus) {
    here.g.removeAttribute('tabindex');
    here = f;
    f.g.setAttribute('tabindex', '0');
    if (focus) f.g.focus();
  }

  function shown(f) { return !/ out\b/.test(f.g.getAttribute('class')); }

  function beside(key) {
    var level = here.level + (key === 'ArrowDown' ? 1 : key === 'ArrowUp' ? -1 : 0), best = null;
    frames.forEach(function (f) {
      if (f.level !== level || f === here || !shown(f)) return;
      var fits = key === 'ArrowDown' ? f.x >= here.x && f.x + f.w <= here.x + here.w + 1 && (!best || f.w > best.w)
        : key === 'ArrowUp' ? f.x <= here.x && f.x + f.w >= here.x + here.w - 1
        : key === 'ArrowRight' ? f.x > here.x && (!best || f.x < best.x)
        : f.x < here.x && (!best || f.x > best.x);
      if (fits) best = f;
    });
    return best;
  }

  function frameOf(event) {
    var g = event.target.closest ? event.target.closest('g.f') : null;
    return g ? byId[g.id] : null;
  }

  svg.addEventListener('click', function (event) { var f = frameOf(event); if (f) go({ z: f.g.id }); });
  svg.addEventListener('mouseover', function (event) { var f = frameOf(event); if (f) says.textContent = f.about; });
  svg.addEventListener('focusin', function (event) { var f = frameOf(event); if (f) says.textContent = f.about; });
  svg.addEventListener('keydown', function (event) {
    if (event.key === 'Enter' || event.key === ' ') go({ z: here.g.id });
    else if (event.key === 'Escape') go({ z: '' });
    else if (event.key.indexOf('Arrow') === 0) { var f = beside(event.key); if (f) reach(f, true); }
    else return;
    event.preventDefault();
    if (event.key === 'Enter' || event.key === ' ') here.g.focus();
  });
  input.addEventListener('input', function () { go({ s: input.value }); });
  reset.addEventListener('click', function () { go({ z: '', s: '' }); });
  window.addEventListener('hashchange', show);
  show();
}());
