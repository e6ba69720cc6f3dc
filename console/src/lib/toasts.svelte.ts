// Short messages about finished or failed actions.
import { Problem } from "../api/client";

export type Toast = {
    id: number;
    text: string;
    tone: "ok" | "fail";
    action?: { label: string; run: () => void };
};

class Toasts {
    list = $state.raw<Toast[]>([]);
    #next = 1;

    show(text: string, options: { tone?: "ok" | "fail"; action?: Toast["action"] } = {}) {
        const toast: Toast = { id: this.#next++, text, tone: options.tone ?? "ok" };
        if (options.action) toast.action = options.action;
        this.list = [...this.list.slice(-3), toast];
        setTimeout(() => this.dismiss(toast.id), toast.tone === "fail" ? 12_000 : 6000);
    }

    fail(error: unknown) {
        const text = error instanceof Problem ? `${error.title}: ${error.detail}` : String(error);
        this.show(text, { tone: "fail" });
    }

    dismiss(id: number) {
        this.list = this.list.filter((toast) => toast.id !== id);
    }
}

export const toasts = new Toasts();

/** Runs an action at once and reports its failure. */
export async function attempt(run: () => Promise<unknown>, done?: string): Promise<boolean> {
    try {
        await run();
        if (done) toasts.show(done);
        return true;
    } catch (error) {
        toasts.fail(error);
        return false;
    }
}
