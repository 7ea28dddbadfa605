"""A network device that returns each packet to 10.9.0.2 as if that host had sent it, 200 ms later.

A connection to 10.9.0.2 thus reaches this machine's own 10.9.0.1 with a round trip of 400 ms. Packets to other addresses are lost."""

import fcntl
import os
import select
import struct
import subprocess
import time

TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
DELAY = 0.2
FAR = bytes([10, 9, 0, 2])

device = os.open("/dev/net/tun", os.O_RDWR)
fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH", b"far", IFF_TUN | IFF_NO_PI))
subprocess.run(["ip", "addr", "add", "10.9.0.1/24", "dev", "far"], check=True)
subprocess.run(["ip", "link", "set", "far", "up"], check=True)
print("ready", flush=True)

on_the_way = []
while True:
    wait = max(0.0, on_the_way[0][0] - time.monotonic()) if on_the_way else None
    if select.select([device], [], [], wait)[0]:
        packet = os.read(device, 65536)
        source, destination = packet[12:16], packet[16:20]
        if packet[0] >> 4 == 4 and destination == FAR:
            # Swapped addresses leave every checksum as it is.
            swapped = packet[:12] + destination + source + packet[20:]
            on_the_way.append((time.monotonic() + DELAY, swapped))
    while on_the_way and on_the_way[0][0] <= time.monotonic():
        os.write(device, on_the_way.pop(0)[1])
