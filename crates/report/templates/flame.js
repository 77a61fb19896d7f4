/* Zoom, search and keys for the flame graphs above. The pictures are whole without this.

   Keys in a graph: arrows, Enter to zoom, Escape to see all; a letter goes to the search. There: Enter goes to the widest
   frame that is marked, Escape clears and goes back.

   State is in the address, so that it can be mailed and "back" undoes it:  #z=ID  zooms to a frame (of several graphs, an
   ID each, between commas),  #s=text  marks frames whose name has the text in it (upper and lower case alike) and sums
   their share;  #z=f12&s=udp  does both.

   Each frame <g class="f"> has data-x and data-w (place and width of the whole graph, in integers), data-l (level) and
   data-n (its whole name). Zooming writes x, width and label anew; nothing is added or taken away. */
(function () {
  'use strict';
  var tools = document.getElementById('flame-tools'), byId = {};
  var graphs = Array.prototype.map.call(document.querySelectorAll('svg.flame'), function (svg) {
    var graph = { svg: svg, name: svg.dataset.name, side: +svg.dataset.side, width: +svg.dataset.width,
      character: +svg.dataset.char };
    graph.frames = Array.prototype.map.call(svg.querySelectorAll('g.f'), function (g) {
      return byId[g.id] = { graph: graph, g: g, rect: g.querySelector('rect'), text: g.querySelector('text'),
        x: +g.dataset.x, w: +g.dataset.w, level: +g.dataset.l, name: g.dataset.n, lower: g.dataset.n.toLowerCase(),
        about: g.querySelector('title').textContent };
    });
    graph.here = graph.frames[0];
    return graph;
  }).filter(function (graph) { return graph.frames.length; });
  if (!tools || !graphs.length) return;
  /* The graph that had the focus last, and the address that was drawn last. */
  var last = graphs[0], drawn = null;
  var input = document.getElementById('flame-search'), says = document.getElementById('flame-says');
  var reset = document.getElementById('flame-reset');
  tools.hidden = false;

  function label(f, room) {
    var most = Math.floor((room - 6) / f.graph.character);
    return most < 3 ? '' : f.name.length <= most ? f.name : f.name.slice(0, most - 1) + '\u2026';
  }

  /* Callers of the one zoomed to span the width; what is beside it is hidden; its callees grow with it. */
  function zoom(to) {
    var graph = to.graph, scale = graph.width / to.w, end = to.x + to.w;
    graph.frames.forEach(function (f) {
      var caller = f.level < to.level && f.x <= to.x && f.x + f.w >= end;
      var inside = f.level >= to.level && f.x >= to.x && f.x + f.w <= end + 2;
      if (!caller && !inside) { f.g.setAttribute('class', f.g.getAttribute('class').replace(/ (caller|out)\b/g, '') + ' out'); return; }
      var x = caller ? 0 : (f.x - to.x) * scale, w = caller ? graph.width : f.w * scale;
      f.g.setAttribute('class', f.g.getAttribute('class').replace(/ (caller|out)\b/g, '') + (caller ? ' caller' : ''));
      f.rect.setAttribute('x', graph.side + x);
      f.rect.setAttribute('width', Math.max(w - 0.4, 0.2));
      f.text.setAttribute('x', graph.side + x + 3);
      f.text.textContent = label(f, w);
    });
  }

  /* A frame within a marked frame is not counted twice: callers stand before their callees in the page. What was rounded
     may be off by one to either side, and no frame is that narrow. */
  function search(graph, wanted) {
    var found = 0, share = 0, ends = 0;
    graph.frames.forEach(function (f) {
      var hit = wanted !== '' && f.lower.indexOf(wanted) >= 0;
      f.g.setAttribute('class', f.g.getAttribute('class').replace(/ hit\b/g, '') + (hit ? ' hit' : ''));
      if (!hit) return;
      found += 1;
      if (f.x >= ends - 2) { share += f.w; ends = f.x + f.w; }
    });
    return (graphs.length > 1 ? graph.name + ': ' : '') + found + (found === 1 ? ' frame, ' : ' frames, ') +
      (share / graph.frames[0].w * 100).toFixed(1) + ' % of the whole';
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

  /* The frame that each graph is zoomed to. */
  function zoomed(z) {
    return graphs.map(function (graph) {
      return z.split(',').reduce(function (found, id) {
        return byId[id] && byId[id].graph === graph ? byId[id] : found;
      }, graph.frames[0]);
    });
  }

  function show() {
    var state = wanted(), to = zoomed(state.z), text = state.s.toLowerCase();
    drawn = location.hash;
    to.forEach(zoom);
    var found = graphs.map(function (graph) { return search(graph, text); });
    says.textContent = text === '' ? '' : found.join('; ');
    if (input.value !== state.s) input.value = state.s;
    reset.disabled = state.s === '' && to.every(function (f) { return f === f.graph.frames[0]; });
    to.forEach(function (f) { reach(f, false); });
  }

  function go(to, text) {
    var away = to.filter(function (f) { return f !== f.graph.frames[0]; });
    var parts = away.length ? ['z=' + away.map(function (f) { return f.g.id; }).join(',')] : [];
    if (text) parts.push('s=' + encodeURIComponent(text));
    location.hash = parts.join('&');
    show();
  }

  function zoomTo(f) {
    var state = wanted();
    go(zoomed(state.z).map(function (old) { return old.graph === f.graph ? f : old; }), state.s);
  }

  /* One frame of a graph at a time can be reached by Tab; arrows go from frame to frame. */
  function reach(f, focus) {
    f.graph.here.g.removeAttribute('tabindex');
    f.graph.here = f;
    f.g.setAttribute('tabindex', '0');
    if (focus) f.g.focus();
  }

  function widest(frames) {
    return frames.reduce(function (best, f) {
      var hit = shown(f) && / hit\b/.test(f.g.getAttribute('class'));
      return hit && (!best || f.w > best.w) ? f : best;
    }, null);
  }

  function shown(f) { return !/ out\b/.test(f.g.getAttribute('class')); }

  function beside(here, key) {
    var level = here.level + (key === 'ArrowDown' ? 1 : key === 'ArrowUp' ? -1 : 0), best = null;
    here.graph.frames.forEach(function (f) {
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

  graphs.forEach(function (graph) {
    var svg = graph.svg;
    svg.setAttribute('role', 'group');
    svg.addEventListener('click', function (event) { var f = frameOf(event); if (f) zoomTo(f); });
    svg.addEventListener('mouseover', function (event) { var f = frameOf(event); if (f) says.textContent = f.about; });
    svg.addEventListener('focusin', function (event) {
      var f = frameOf(event);
      if (!f) return;
      says.textContent = f.about;
      last = graph;
    });
    svg.addEventListener('keydown', function (event) {
      var f = graph.here;
      if (event.key === 'Enter' || event.key === ' ') zoomTo(f);
      else if (event.key === 'Escape') zoomTo(graph.frames[0]);
      else if (event.key.indexOf('Arrow') === 0) f = beside(f, event.key) || f;
      else if (event.key.length === 1 && !event.ctrlKey && !event.metaKey && !event.altKey) {
        /* What is typed is searched: the search has the focus before the character comes. */
        input.focus();
        input.select();
        return;
      } else return;
      reach(f, true);
      event.preventDefault();
    });
  });
  input.addEventListener('input', function () { go(zoomed(wanted().z), input.value); });
  input.addEventListener('keydown', function (event) {
    var all = graphs.reduce(function (frames, graph) { return frames.concat(graph.frames); }, []);
    var f = event.key === 'Enter' ? widest(last.frames) || widest(all) : last.here;
    if (event.key === 'Escape') go(zoomed(wanted().z), '');
    else if (event.key !== 'Enter') return;
    if (f) reach(f, true);
    event.preventDefault();
  });
  reset.addEventListener('click', function () { go([], ''); });
  /* What go() has drawn is not drawn again, and whatever has the focus since keeps it. */
  window.addEventListener('hashchange', function () { if (location.hash !== drawn) show(); });
  show();
}());
