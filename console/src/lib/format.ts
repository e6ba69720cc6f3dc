// Times, durations, numbers and ids, as every page shows them.

const grouped = new Intl.NumberFormat("en-US");
const compact = new Intl.NumberFormat("en-US", { notation: "compact", maximumFractionDigits: 1 });

/** Grouped and complete up to 99,999, then rounded. */
export function count(value: number): string {
    return value <= 99_999
        ? grouped.format(value)
        : compact.format(value).replace(/([KMBT])$/, " $1");
}

export function exactCount(value: number): string {
    return grouped.format(value);
}

/** `1 resource`, `2 resources`. */
export function plural(value: number, one: string, many = `${one}s`): string {
    return `${count(value)} ${value === 1 ? one : many}`;
}

/** `850 ms`, `4.2 s`, `1m 20s`, `3h 5m`, `2d 4h`. */
export function duration(milliseconds: number): string {
    const ms = Math.max(0, milliseconds);
    if (ms < 1000) return `${Math.round(ms)} ms`;
    const seconds = ms / 1000;
    if (seconds < 10) return `${seconds.toFixed(1)} s`;
    if (seconds < 60) return `${Math.round(seconds)} s`;
    const whole = Math.round(seconds);
    const pair = (big: number, bigUnit: string, small: number, smallUnit: string) =>
        small ? `${big}${bigUnit} ${small}${smallUnit}` : `${big}${bigUnit}`;
    if (whole < 3600) return pair(Math.floor(whole / 60), "m", whole % 60, "s");
    if (whole < 86_400)
        return pair(Math.floor(whole / 3600), "h", Math.floor((whole % 3600) / 60), "m");
    return pair(Math.floor(whole / 86_400), "d", Math.floor((whole % 86_400) / 3600), "h");
}

/** `3 min ago`, `in 48 s`; the date if it is more than a day away. */
export function relative(at: number, now: number): string {
    const distance = Math.abs(now - at);
    if (distance >= 86_400_000) return date(at, now);
    const seconds = Math.round(distance / 1000);
    if (seconds < 2) return "now";
    let text = `${seconds} s`;
    if (seconds >= 3600) text = `${Math.floor(seconds / 3600)} h`;
    else if (seconds >= 60) text = `${Math.floor(seconds / 60)} min`;
    return at > now ? `in ${text}` : `${text} ago`;
}

function date(at: number, now: number): string {
    const sameYear = new Date(at).getFullYear() === new Date(now).getFullYear();
    return new Intl.DateTimeFormat("en-GB", {
        day: "numeric",
        month: "short",
        ...(sameYear ? { hour: "2-digit", minute: "2-digit" } : { year: "numeric" }),
    }).format(at);
}

/** Date, time and zone. */
export function absolute(at: number): string {
    return new Intl.DateTimeFormat("en-GB", {
        dateStyle: "medium",
        timeStyle: "long",
    }).format(at);
}

/** Time of day, for clocks and logs. */
export function clock(at: number, withMillis = false): string {
    return new Intl.DateTimeFormat("en-GB", {
        hour: "2-digit",
        minute: "2-digit",
        second: "2-digit",
        ...(withMillis ? { fractionalSecondDigits: 3 as const } : {}),
    }).format(at);
}

/** First 8 characters of a UUID or hash. */
export function shortId(id: string): string {
    return id.slice(0, 8);
}

/** Cuts in the middle: both ends of an id matter. */
export function cutMiddle(text: string, max: number): string {
    if (text.length <= max) return text;
    const head = Math.ceil((max - 1) / 2);
    return `${text.slice(0, head)}…${text.slice(text.length - (max - 1 - head))}`;
}

/** A value as people read it: text as it is, the rest as JSON. */
export function valueText(value: unknown): string {
    if (typeof value === "string") return value;
    return JSON.stringify(value, null, 2) ?? "null";
}

/** Text without terminal control sequences. */
export function stripAnsi(text: string): string {
    // oxlint-disable-next-line no-control-regex
    return text.replaceAll(/\u001b\[[0-9;?]*[ -/]*[@-~]|\u001b\][^\u0007]*(\u0007|\u001b\\)/g, "");
}
