// Decoding of a server frame: JSON, then rows of vehicles. `frame_of` in server.py encodes it.

export const ROW_WORDS = 5;
export const UNKNOWN = 0xffff;

export type Row = Record<string, unknown>;
export type Changes = Record<string, Row | null>;

export interface Frame {
  at: number;
  whole: boolean;
  tables: Record<string, Changes>;
  removed: number[];
  names: Record<string, string>;
  vehicles: Int32Array;
}

/** Decode a frame. */
export function frameFrom(data: ArrayBuffer): Frame {
  const length = new DataView(data).getUint32(0, true);
  const head = JSON.parse(new TextDecoder().decode(new Uint8Array(data, 4, length))) as Omit<Frame, "vehicles">;
  return { ...head, vehicles: new Int32Array(data, 4 + length) };
}
