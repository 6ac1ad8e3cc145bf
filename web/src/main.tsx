import { render } from "preact";
import { App } from "./app";
import { run } from "./state";

render(<App />, document.getElementById("app")!);
void run();
