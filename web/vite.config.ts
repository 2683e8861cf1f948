import { defineConfig } from "vite";
import { viteSingleFile } from "vite-plugin-singlefile";

// One file, which hodo embeds and `hodo view -o` writes: it refers to no other.
export default defineConfig({
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: { target: "es2022", reportCompressedSize: false },
  plugins: [viteSingleFile({ removeViteModuleLoader: true })],
});
