import { defineConfig } from "vitest/config";

// Files run one after the other: each starts a browser.
export default defineConfig({
  test: { fileParallelism: false, testTimeout: 120_000, hookTimeout: 60_000, environment: "node" },
});
