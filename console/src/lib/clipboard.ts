// The clipboard. Pages over plain HTTP have no clipboard API.
export async function copy(text: string): Promise<boolean> {
    try {
        await navigator.clipboard.writeText(text);
        return true;
    } catch {
        const area = document.createElement("textarea");
        area.value = text;
        area.className = "sr-only";
        (document.querySelector("dialog[open]") ?? document.body).append(area);
        area.select();
        const isDone = document.execCommand("copy");
        area.remove();
        return isDone;
    }
}
