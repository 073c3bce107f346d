// The source's time: stop and play, speed, and the place in a recording. Must not know the source.

import { hasToken } from "./api.js";
import { h, options, setText } from "./dom.js";
import * as format from "./format.js";
import * as orders from "./orders.js";

const SPEEDS = [0.25, 0.5, 1, 2, 5, 10, 60];

const find = (id) => document.getElementById(id);

export class Clock {
  /** `give` sends an order. */
  constructor(give) {
    this.frame = find("clock");
    this.stop = find("stop");
    this.rate = options(find("rate"), SPEEDS.map((value) => [String(value), `x${value}`]), "1");
    this.places = find("places");
    this.place = find("place");
    this.stop.addEventListener("click", () => give(this.isStopped ? orders.play() : orders.stop()));
    this.rate.addEventListener("change", () => give(orders.speed(Number(this.rate.value))));
    this.place.addEventListener("input", () => give(orders.seek(Number(this.place.value))));
  }

  update(picture) {
    const { speed, stopped, length_s: length, place_s: place } = picture.source;
    this.isStopped = stopped === true;
    this.frame.hidden = !orders.takes(picture, "speed");
    this.places.hidden = !orders.takes(picture, "seek");
    setText(this.stop, this.isStopped ? "Play" : "Stop");
    for (const control of [this.stop, this.rate, this.place]) control.disabled = !hasToken();
    if (typeof speed === "number" && document.activeElement !== this.rate) {
      const value = String(speed);
      if (![...this.rate.options].some((option) => option.value === value)) {
        this.rate.append(h("option", { value, text: `x${value}` }));
      }
      this.rate.value = value;
    }
    if (typeof length === "number") {
      this.place.max = Math.ceil(length);
      if (document.activeElement !== this.place) this.place.value = place ?? 0;
      this.place.setAttribute("aria-valuetext", `${format.seconds(place)} of ${format.seconds(length)}`);
    }
  }
}
