// The visible part of a drawing: pan, zoom, fit. A place of the drawing is on the screen at
// place * scale + offset.

export type Camera = { scale: number; x: number; y: number };
export type Extent = { w: number; h: number };

export const SCALE_MIN = 0.05;
export const SCALE_MAX = 2;
const MARGIN = 24;

const clamp = (value: number, min: number, max: number) => Math.min(max, Math.max(min, value));

/** Shows all of a drawing, never larger than its natural size. */
export function fit(bounds: Extent, view: Extent): Camera {
    const scale = clamp(
        Math.min(
            (view.w - 2 * MARGIN) / Math.max(1, bounds.w),
            (view.h - 2 * MARGIN) / Math.max(1, bounds.h),
        ),
        SCALE_MIN,
        1,
    );
    return {
        scale,
        x: (view.w - bounds.w * scale) / 2,
        y: (view.h - bounds.h * scale) / 2,
    };
}

/** Zooms by a factor; the place under the pointer stays there. */
export function zoom(camera: Camera, factor: number, at: { x: number; y: number }): Camera {
    const scale = clamp(camera.scale * factor, SCALE_MIN, SCALE_MAX);
    const real = scale / camera.scale;
    return { scale, x: at.x - (at.x - camera.x) * real, y: at.y - (at.y - camera.y) * real };
}

/** Moves the view. A corner of the drawing always stays visible. */
export function pan(camera: Camera, dx: number, dy: number, bounds: Extent, view: Extent): Camera {
    const rest = 60;
    const limit = (offset: number, size: number, extent: number) =>
        clamp(offset, rest - size * camera.scale, extent - rest);
    return {
        scale: camera.scale,
        x: limit(camera.x + dx, bounds.w, view.w),
        y: limit(camera.y + dy, bounds.h, view.h),
    };
}

/** Moves the view as little as possible so that a box is visible. */
export function reveal(
    camera: Camera,
    box: { x: number; y: number; w: number; h: number },
    view: Extent,
): Camera {
    const along = (from: number, size: number, offset: number, extent: number) => {
        const begin = from * camera.scale + offset;
        const end = begin + size * camera.scale;
        if (begin < MARGIN) return offset + MARGIN - begin;
        if (end > extent - MARGIN) return offset + extent - MARGIN - end;
        return offset;
    };
    return {
        scale: camera.scale,
        x: along(box.x, box.w, camera.x, view.w),
        y: along(box.y, box.h, camera.y, view.h),
    };
}

/** The place of the drawing under a point of the screen. */
export function toDrawing(camera: Camera, x: number, y: number): { x: number; y: number } {
    return { x: (x - camera.x) / camera.scale, y: (y - camera.y) / camera.scale };
}

/** Transformation that turns a bitmap painted with one camera into what another one sees. */
export function between(painted: Camera, now: Camera): { scale: number; x: number; y: number } {
    const scale = now.scale / painted.scale;
    return { scale, x: now.x - painted.x * scale, y: now.y - painted.y * scale };
}
