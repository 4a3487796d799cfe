// The default theme with the demos as components that only browsers load.

import { defineAsyncComponent, type Component } from "vue";
import DefaultTheme from "vitepress/theme";
import type { Theme } from "vitepress";
import FourRanks from "../../src/FourRanks.vue";
import "./style.css";

export default {
  extends: DefaultTheme,
  enhanceApp({ app }) {
    app.component("FourRanks", FourRanks);
    const lazy = (load: () => Promise<Component>) => defineAsyncComponent(load);
    app.component("AllreduceDemo", lazy(() => import("../../src/allreduce/AllreduceDemo.vue")));
    app.component("ScheduleDemo", lazy(() => import("../../src/schedule/ScheduleDemo.vue")));
    app.component("SpeedResults", lazy(() => import("../../src/speed/SpeedResults.vue")));
    app.component("StartResults", lazy(() => import("../../src/speed/StartResults.vue")));
    app.component("StoreResults", lazy(() => import("../../src/speed/StoreResults.vue")));
    app.component("SurviveDemo", lazy(() => import("../../src/survive/SurviveDemo.vue")));
    app.component("TracePage", lazy(() => import("../../src/trace/TracePage.vue")));
    app.component("TrainDemo", lazy(() => import("../../src/train/TrainDemo.vue")));
  },
} satisfies Theme;
