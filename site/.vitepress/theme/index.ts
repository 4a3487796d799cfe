// The default theme with the demos as components that only browsers load.

import { defineAsyncComponent } from "vue";
import DefaultTheme from "vitepress/theme";
import type { Theme } from "vitepress";
import FourRanks from "../../src/FourRanks.vue";
import "./style.css";

export default {
  extends: DefaultTheme,
  enhanceApp({ app }) {
    app.component("FourRanks", FourRanks);
    app.component(
      "ScheduleDemo",
      defineAsyncComponent(() => import("../../src/schedule/ScheduleDemo.vue")),
    );
  },
} satisfies Theme;
