// What is on its way or waited for at the moment: copies, products, mbarriers, barriers.

const QUEUES = { copies: "cp.async", bulk_copies: "bulk copy", signals: "copy, tells an mbarrier", products: "wgmma", tensor_work: "tcgen05", tensor_stores: "tcgen05.st" };
const nameOfWork = ({ queue, work }) => (work === "commit" ? "tcgen05.commit" : queue === "tensor_work" ? `tcgen05 ${work}` : QUEUES[queue]);
/** Name warps, those that follow each other by the first and the last. */
function nameOfWarps(warps) {
  const parts = [];
  for (const warp of warps) {
    const last = parts[parts.length - 1];
    if (last && last[1] === warp - 1 && ofCta(warp) === ofCta(last[1])) last[1] = warp;
    else parts.push([warp, warp]);
  }
  return parts.map(([first, last]) => (first === last ? nameOfWarp(first) : `${nameOfWarp(first)} to ${last % data.ctaWarps}`)).join(", ");
}
const nameOfWarp = (warp) => (ofCta(warp) ? `warp ${warp % data.ctaWarps}` : `warp ${warp % data.ctaWarps} of rank ${Math.floor(warp / data.ctaWarps)}`);

function waitingRows() {
  const moment = state.step + 1, rows = [];
  const aloft = data.flights.filter((one) => one.step < moment && (one.landed === null || one.landed > moment));
  const alike = new Map();
  for (const flight of aloft) {
    const together = flight.queue === "tensor_work" ? "commit" : "group", alone = ["signals", "tensor_stores"].includes(flight.queue);
    const group = flight.committed !== null && flight.committed <= moment ? `${together} ${flight.group}` : alone ? "" : `no ${together} yet`;
    const key = `${nameOfWork(flight)}|${group}|${nameOfWarps(flight.warps)}`;
    const known = alike.get(key) || { count: 0, nbytes: 0, last: flight };
    alike.set(key, { count: known.count + 1, nbytes: known.nbytes + flight.nbytes, last: flight });
  }
  for (const [key, { count, nbytes, last }] of alike) {
    const [what, group, who] = key.split("|");
    rows.push([what, [`${count} on ${count === 1 ? "its" : "their"} way${nbytes ? `, ${plural(nbytes, "byte")}` : ""}`, group, who].filter(Boolean).join(" · "), "copy", last.step]);
  }
  for (const one of data.mbarriers) {
    const now = [...one.states].reverse().find(({ at }) => at <= moment);
    if (!now || (one.unmade !== null && one.unmade <= moment)) continue;
    const lacks = [`${now.pending} of ${one.expected} pending`];
    if (now.tx) lacks.push(`${plural(now.tx, "byte")} to come`);
    rows.push([`${one.name}${data.ctas > 1 ? ` of rank ${one.cta}` : ""}`, `phase ${now.phase} · ${lacks.join(" · ")}`, now.phase % 2 ? "odd" : "even", now.at - 1]);
  }
  for (const one of data.barriers) {
    const came = one.arrivals.filter((step) => step < moment);
    if (!came.length || (one.complete !== null && one.complete <= moment)) continue;
    const who = [...new Set(came.flatMap((step) => data.together[column.who[step]]))].sort((a, b) => a - b);
    rows.push([one.cta === null ? "barrier of the cluster" : `barrier ${one.name}`, `${nameOfWarps(who)} came`, "sync", came[came.length - 1]]);
  }
  return rows;
}

function drawWaiting() {
  const rows = waitingRows();
  $("waiting").hidden = !(data.flights.length || data.mbarriers.length || data.barriers.length);
  $("rows").innerHTML = rows.length ? rows.map(([what, how, look, step]) =>
    `<li><button type="button" class="${look}" data-go="${Math.max(step, 0)}" title="${look === "odd" || look === "even" ? "an mbarrier: " : ""}to the step that began it or changed it last"><b>${escape(what)}</b> ${escape(how)}</button></li>`).join("")
    : '<li class="hint">nothing is on its way, and nobody waits at a barrier</li>';
}
