import { render } from "preact";

import { App } from "./app";
import "./shared/theme.css";

const page = document.getElementById("page");
if (page) render(<App />, page);
