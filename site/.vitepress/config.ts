// What VitePress needs to know: navigation, search, and how the demos are bundled.

import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { defineConfig } from "vitepress";

const root = fileURLToPath(new URL("../..", import.meta.url));

/** The generated pages of the reference, in the order of their list. */
const topics = [
  ...readFileSync(`${root}site/reference/index.md`, "utf8").matchAll(/^- \[(.+?)\]\(\.\/(.+?)\)/gm),
].map(([, text = "", name = ""]) => ({ text, link: `/reference/${name}` }));

export default defineConfig({
  title: "polyrank",
  description: "One process group, ranks in any language.",
  lang: "en",
  cleanUrls: true,
  srcExclude: ["node_modules", "src", "tests"],
  head: [["link", { rel: "icon", type: "image/svg+xml", href: "/favicon.svg" }]],
  themeConfig: {
    logo: "/favicon.svg",
    search: { provider: "local" },
    outline: [2, 3],
    nav: [
      { text: "Start", link: "/start/", activeMatch: "^/start/" },
      { text: "Concepts", link: "/concepts/groups", activeMatch: "^/concepts/" },
      { text: "Reference", link: "/reference/", activeMatch: "^/reference/" },
      { text: "Demos", link: "/demos/", activeMatch: "^/demos/" },
      { text: "Speed", link: "/speed/", activeMatch: "^/speed/" },
    ],
    sidebar: {
      "/start/": [
        {
          text: "Getting started",
          items: [
            { text: "Which language?", link: "/start/" },
            { text: "Install", link: "/start/install" },
            { text: "Rust", link: "/start/rust" },
            { text: "Python", link: "/start/python" },
            { text: "Node", link: "/start/node" },
            { text: "Browser", link: "/start/browser" },
            { text: "Starting a job", link: "/start/launch" },
            { text: "Over MPI", link: "/start/mpi" },
            { text: "Over NCCL", link: "/start/nccl" },
          ],
        },
      ],
      "/concepts/": [
        {
          text: "Concepts",
          items: [
            { text: "One process group", link: "/concepts/groups" },
            { text: "Collectives", link: "/concepts/collectives" },
            { text: "Meshes", link: "/concepts/meshes" },
            { text: "Groups whose members change", link: "/concepts/members" },
            { text: "Replicas that come and go", link: "/concepts/replicas" },
            { text: "The lighthouse", link: "/concepts/lighthouse" },
            { text: "Stores", link: "/concepts/stores" },
            { text: "How bytes travel", link: "/concepts/transports" },
            { text: "Windows", link: "/concepts/windows" },
            { text: "Schedules", link: "/concepts/schedules" },
            { text: "Which backend?", link: "/concepts/choosing" },
            { text: "What backends can do", link: "/concepts/backends" },
            { text: "A backend of your own", link: "/concepts/own-backends" },
            { text: "Errors", link: "/concepts/errors" },
            { text: "Reductions", link: "/concepts/reductions" },
            { text: "Hooks", link: "/concepts/hooks" },
            { text: "Reading a hang", link: "/concepts/hangs" },
            { text: "Debugging", link: "/concepts/debugging" },
            { text: "Logs", link: "/concepts/logs" },
            { text: "Troubleshooting", link: "/concepts/troubleshooting" },
            { text: "Differences from torch.distributed", link: "/concepts/differences" },
          ],
        },
      ],
      "/reference/": [
        { text: "Reference", items: [{ text: "All names", link: "/reference/" }, ...topics] },
        {
          text: "Around it",
          items: [
            { text: "Command line", link: "/reference/command-line" },
            { text: "Environment variables", link: "/reference/environment" },
          ],
        },
      ],
    },
    socialLinks: [{ icon: "github", link: "https://github.com/polyrank/polyrank" }],
    footer: { message: "MIT or Apache-2.0, as you like." },
  },
  vite: {
    resolve: {
      alias: [
        { find: /^polyrank-web\/drawing$/, replacement: `${root}bindings-wasm/js/drawing.js` },
        { find: /^polyrank-web$/, replacement: `${root}bindings-wasm/js/index.js` },
      ],
    },
    // The browser package waits for its WebAssembly while it is loaded.
    build: { target: "es2022" },
    worker: { format: "es" },
    // The browser package and the data set lie beside the site.
    server: { fs: { allow: [root] } },
  },
});
