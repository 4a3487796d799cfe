// A time that plays, pauses, steps and seeks. Knows nothing of what happens in it.

import { computed, onBeforeUnmount, ref, watch, type Ref } from "vue";

/** A player of something that takes `total`, on the screen `screenSeconds`. */
export function usePlayer(
  total: Readonly<Ref<number>>,
  screenSeconds: () => number,
  moments: () => number[],
) {
  const time = ref(0);
  const isPlaying = ref(false);
  const isDone = computed(() => time.value >= total.value);
  let request = 0;
  let last = 0;

  function advance(now: number): void {
    request = 0;
    const passed = (now - last) / 1000 / screenSeconds();
    time.value = Math.min(total.value, time.value + passed * total.value);
    last = now;
    isPlaying.value &&= !isDone.value;
    tick();
  }

  function tick(): void {
    if (isPlaying.value && request === 0) {
      request = requestAnimationFrame(advance);
    }
  }

  function start(): void {
    if (isDone.value) {
      time.value = 0;
    }
    last = performance.now();
    isPlaying.value = true;
    tick();
  }

  function seek(value: number): void {
    isPlaying.value = false;
    time.value = value;
  }

  function toggle(): void {
    if (isPlaying.value) {
      isPlaying.value = false;
    } else {
      start();
    }
  }

  /** To the next or the last of the moments. */
  function step(direction: 1 | -1): void {
    const slack = total.value * 1e-9;
    const before = moments().filter((moment) => moment < time.value - slack);
    const after = moments().filter((moment) => moment > time.value + slack);
    seek(direction > 0 ? Math.min(total.value, ...after) : Math.max(0, ...before));
  }

  /** Starts, unless the user asked for less motion. */
  function startIfWelcome(): void {
    if (!window.matchMedia("(prefers-reduced-motion: reduce)").matches) {
      start();
    }
  }

  watch(total, () => {
    time.value = Math.min(time.value, total.value);
  });
  onBeforeUnmount(() => cancelAnimationFrame(request));
  return { time, isPlaying, isDone, toggle, step, seek, startIfWelcome };
}
